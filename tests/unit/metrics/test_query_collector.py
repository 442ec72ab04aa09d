"""The driver's numbers, as Prometheus would read them."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from connector.metrics.catalog import BATCH_DURATION, DRIVER_METRICS
from connector.metrics.progress import BatchFacts
from connector.metrics.query_collector import QueryCollector


@pytest.fixture
def collector():
    return QueryCollector()


@pytest.fixture
def registry(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _batch(query: str = "copy", **changes: Any) -> BatchFacts:
    facts = BatchFacts(
        query=query,
        is_executed=True,
        row_count=10,
        finished_at_s=1_000.5,
        phase_durations_ms={"triggerExecution": 350, "addBatch": 120},
        lag_by_topic={"orders": 15},
    )
    return replace(facts, **changes)


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"kafka_follower_{name}", labels)


def test_batches_add_up(collector, registry):
    collector.on_progress(_batch())
    collector.on_progress(_batch(row_count=5, finished_at_s=1_002.0, lag_by_topic={"orders": 3}))
    assert _value(registry, "rows_total", query="copy") == 15
    assert _value(registry, "batches_total", query="copy") == 2
    assert _value(registry, "last_commit_timestamp_seconds", query="copy") == 1_002.0
    assert _value(registry, "topic_lag_records", query="copy", topic="orders") == 3
    total = {"query": "copy", "phase": "triggerExecution"}
    assert _value(registry, "batch_duration_seconds_count", **total) == 2
    assert _value(registry, "batch_duration_seconds_sum", **total) == pytest.approx(0.7)


def test_started_query_shows_zeros(collector, registry):
    collector.on_started("copy")
    assert _value(registry, "rows_total", query="copy") == 0
    assert _value(registry, "batches_total", query="copy") == 0
    assert _value(registry, "last_commit_timestamp_seconds", query="copy") is None


def test_trigger_without_a_batch_updates_only_the_lag(collector, registry):
    collector.on_progress(_batch())
    collector.on_progress(_batch(is_executed=False, row_count=0, finished_at_s=2_000.0, lag_by_topic={"orders": 0}))
    assert _value(registry, "batches_total", query="copy") == 1
    assert _value(registry, "last_commit_timestamp_seconds", query="copy") == 1_000.5
    assert _value(registry, "topic_lag_records", query="copy", topic="orders") == 0


def test_topic_that_is_no_longer_read_has_no_lag(collector, registry):
    collector.on_progress(_batch(lag_by_topic={"orders": 1, "users": 2}))
    collector.on_progress(_batch(lag_by_topic={"users": 2}))
    assert _value(registry, "topic_lag_records", query="copy", topic="orders") is None
    assert _value(registry, "topic_lag_records", query="copy", topic="users") == 2


def test_ended_query_loses_its_gauges_and_keeps_its_counters(collector, registry):
    collector.on_progress(_batch())
    collector.on_progress(_batch("other"))
    collector.on_terminated("copy")
    assert _value(registry, "topic_lag_records", query="copy", topic="orders") is None
    assert _value(registry, "last_commit_timestamp_seconds", query="copy") is None
    assert _value(registry, "rows_total", query="copy") == 10
    assert _value(registry, "topic_lag_records", query="other", topic="orders") == 15
    collector.on_progress(_batch())
    assert _value(registry, "rows_total", query="copy") == 20


def test_queries_without_end_are_bounded(collector, registry):
    collector.on_progress(_batch("kept running"))
    collector.on_progress(_batch("started again"))
    collector.on_terminated("started again")
    collector.on_started("started again")
    for number in range(150):
        collector.on_progress(_batch(f"ended {number}"))
        collector.on_terminated(f"ended {number}")
    queries = {sample.labels["query"] for metric in registry.collect() for sample in metric.samples}
    assert queries == {"kept running", "started again", *(f"ended {number}" for number in range(50, 150))}


def test_end_of_an_unknown_query_is_nothing(collector, registry):
    collector.on_terminated("never seen")
    assert "never seen" not in generate_latest(registry).decode()


def test_histogram_is_that_of_prometheus_client(collector, registry):
    """The oracle is the library's own histogram with the same buckets and durations, bounds included."""
    durations_s = [*BATCH_DURATION.buckets, 0.0, 0.051, 7.0, 5_000.0]
    oracle_registry = CollectorRegistry()
    oracle = Histogram("oracle", "-", buckets=BATCH_DURATION.buckets, registry=oracle_registry)
    for duration_s in durations_s:
        oracle.observe(duration_s)
        collector.on_progress(_batch(phase_durations_ms={"addBatch": round(duration_s * 1000)}))

    def samples_of(read_registry: CollectorRegistry, name: str) -> dict[tuple[str, str | None], object]:
        samples = (sample for metric in read_registry.collect() for sample in metric.samples)
        return {
            (s.name.removeprefix(name), s.labels.get("le")): pytest.approx(s.value)
            for s in samples
            if s.name.startswith(name) and not s.name.endswith("_created")
        }

    assert samples_of(registry, BATCH_DURATION.name) == samples_of(oracle_registry, "oracle")


def test_page_is_valid_and_typed(collector, registry):
    collector.on_progress(_batch('a "quoted"\nname', lag_by_topic={"orders": 1}))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert {(f.name, f.type, f.documentation) for f in families} == {
        (spec.family, spec.kind, spec.help) for spec in DRIVER_METRICS
    }
    for spec in DRIVER_METRICS:
        family = next(f for f in families if f.name == spec.family)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(spec.labels)
            assert sample.labels["query"] == 'a "quoted"\nname'


def test_users_multiprocess_files_stay_untouched(tmp_path):
    """prometheus-client picks its value class at import, so this needs a process of its own."""
    script = (
        "from connector.metrics.query_collector import QueryCollector;"
        "from connector.metrics.progress import BatchFacts;"
        "c = QueryCollector(); c.on_progress(BatchFacts('q', True, 1, 1.0, {'addBatch': 1}, {'t': 1})); c.collect()"
    )
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PATH": ""}
    subprocess.run([sys.executable, "-c", script], env=environ, check=True, timeout=30)
    assert list(tmp_path.iterdir()) == []
