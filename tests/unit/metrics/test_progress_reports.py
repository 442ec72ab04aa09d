"""Progress reports, as Spark 4.3.0 writes them, and the lag that is read from them."""

import json

import pytest

from connector.metrics.progress import parse_progress, query_label, topic_lag

OWN = {"$kafka_follower": 1, "offsets": {"orders": {"0": 10, "1": 7}}, "epochs": {"orders": {"0": 3, "1": 3}}}
"""An end offset of ours; the epochs must not be taken for offsets."""
REPORT = {
    "id": "523c5e75-df8c-41c2-86d3-0870612994db",
    "runId": "dec70094-d980-4e2d-aa8e-f504546f520c",
    "name": "copy",
    "timestamp": "2025-11-21T06:52:20.251Z",
    "batchId": 4,
    "batchDuration": 355,
    "numInputRows": 10,
    "durationMs": {"addBatch": 128, "commitOffsets": 91, "getBatch": 0, "latestOffset": 1, "triggerExecution": 352},
    "sources": [
        {"description": "KafkaV2[Subscribe[orders]]", "endOffset": OWN, "latestOffset": {"orders": {"0": 25, "1": 7}}}
    ],
}


def _report(**changes: object) -> str:
    return json.dumps({**REPORT, **changes})


def test_facts_of_a_batch():
    facts = parse_progress(_report())
    assert facts.query == "copy"
    assert facts.is_executed
    assert facts.row_count == 10
    assert facts.finished_at_s == pytest.approx(1763707940.251 + 0.352)
    assert facts.phase_durations_ms == REPORT["durationMs"]
    assert facts.lag_by_topic == {"orders": 15}


def test_query_without_a_name_is_called_by_its_id():
    assert parse_progress(_report(name=None)).query == REPORT["id"]
    assert query_label("", "id") == "id"


def test_trigger_without_a_batch():
    idle = {"latestOffset": 2, "triggerExecution": 2}
    assert not parse_progress(_report(durationMs=idle, numInputRows=0)).is_executed


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        pytest.param({"t": {"0": 5, "1": 5}}, {"t": {"0": 8, "1": 9}}, {"t": 7}, id="Spark's own kafka source"),
        pytest.param(OWN, {"orders": {"0": 11, "1": 9}}, {"orders": 3}, id="our end offset"),
        pytest.param({"t": {"0": 5}, "u": {"0": 1}}, {"t": {"0": 5}, "u": {"0": 3}}, {"t": 0, "u": 2}, id="two topics"),
        pytest.param({"t": {"0": 9, "1": 1}}, {"t": {"0": 5, "1": 3}}, {"t": 2}, id="an older latest is no credit"),
        pytest.param({"t": {"0": 5}}, {"t": {"0": 6, "1": 100}}, {"t": 1}, id="partition not begun"),
        pytest.param({"t": {"0": 5, "1": 5}}, {"t": {"0": 6}}, {"t": 1}, id="partition that latest does not tell"),
        pytest.param({"t": {"0": 5}}, None, {}, id="no latest reported"),
        pytest.param(None, {"t": {"0": 5}}, {}, id="nothing read yet"),
        pytest.param({"$kafka_follower": 1, "start": "earliest"}, {"t": {"0": 5}}, {}, id="our marker of the start"),
        pytest.param(3, 4, {}, id="rate source"),
        pytest.param({"logOffset": 0}, {"logOffset": 3}, {}, id="file source"),
        pytest.param("0:1", "0:4", {}, id="offset that is not JSON"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, {}, id="objects of another source"),
        pytest.param({"t": {"0": "5"}}, {"t": {"0": "6"}}, {}, id="numbers as text"),
        pytest.param({}, {}, {}, id="no partitions"),
    ],
)
def test_lag(end, latest, lag):
    assert topic_lag([{"endOffset": end, "latestOffset": latest}]) == lag


def test_sources_of_one_topic_add_up():
    source = {"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 8}}}
    assert topic_lag([source, source, {"endOffset": 1, "latestOffset": 2}, {}]) == {"t": 6}
