"""What a scrape makes of the slots, against prometheus-client's own merge and its parser."""

from pathlib import Path
from typing import TypeAlias

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from connector.metrics.catalog import EXECUTOR_METRICS, FETCH_BYTES, PREFERRED_READ_REPLICA, RACK_INFO
from connector.metrics.executor_folder import gauge_path, value_paths
from connector.metrics.scrape import SlotCollector
from connector.metrics.slot import SlotRecorder
from connector.metrics.value_file import ValueFile, series_key


@pytest.fixture
def recorders(tmp_path):
    opened = [SlotRecorder(tmp_path) for _ in range(3)]
    yield opened
    for recorder in opened:
        recorder.close()


_Samples: TypeAlias = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _scrape(folder: Path, *, now_s: float = 1_000.0, expiry_s: float = 300.0) -> tuple[_Samples, list[Metric]]:
    """Return all samples as (name, labels) → value, by way of the text that Prometheus gets."""
    registry = CollectorRegistry()
    registry.register(SlotCollector(folder, expiry_s, lambda: now_s))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}, families


def _set_gauge(folder: Path, slot: int, node_id: int, time_s: float) -> None:
    spec = PREFERRED_READ_REPLICA
    file = ValueFile(gauge_path(folder, slot))
    key = series_key(spec.family, spec.name, spec.labels, ("orders", "0"), spec.help)
    file.add(key)
    file.write(key, node_id, time_s)
    file.close()


_PREFERRED = (PREFERRED_READ_REPLICA.name, (("partition", "0"), ("topic", "orders")))


def test_counters_are_summed_as_prometheus_client_does(tmp_path, recorders):
    for amount, recorder in enumerate(recorders, start=1):
        recorder.count(FETCH_BYTES, 10**amount, "orders", "az-a", "local")
        recorder.count(FETCH_BYTES, amount, f"topic-{amount}", 'az-"b"\n\\', "remote")
    samples, _ = _scrape(tmp_path)
    merged = MultiProcessCollector.merge(  # type: ignore[no-untyped-call]  # prometheus-client has no types there
        [str(path) for path in value_paths(tmp_path)[0]]
    )
    expected = {(s.name, tuple(sorted(s.labels.items()))): s.value for metric in merged for s in metric.samples}
    assert samples == expected
    assert samples[FETCH_BYTES.name, (("broker_rack", "az-a"), ("locality", "local"), ("topic", "orders"))] == 1_110


def test_types_and_help_come_through(tmp_path, recorders):
    for spec in EXECUTOR_METRICS:
        record = recorders[0].count if spec.kind == "counter" else recorders[0].gauge
        record(spec, 1, *spec.labels)
    _, families = _scrape(tmp_path, now_s=0)
    assert {(f.name, f.type, f.documentation) for f in families} == {
        (spec.family, spec.kind, spec.help) for spec in EXECUTOR_METRICS
    }


@pytest.mark.parametrize("slots", [(0, 1), (1, 0)])
def test_gauge_that_was_set_last_counts(tmp_path, slots):
    older, newer = slots
    _set_gauge(tmp_path, older, 2, 900.0)
    _set_gauge(tmp_path, newer, 5, 901.0)
    assert _scrape(tmp_path)[0] == {_PREFERRED: 5.0}


@pytest.mark.parametrize(("set_at_s", "is_shown"), [(1_000.0, True), (701.0, True), (700.0, False), (1.0, False)])
def test_gauge_expires(tmp_path, set_at_s, is_shown):
    _set_gauge(tmp_path, 0, 2, set_at_s)
    samples, families = _scrape(tmp_path, now_s=1_000.0, expiry_s=300.0)
    assert samples == ({_PREFERRED: 2.0} if is_shown else {})
    assert len(families) == len(samples)


def test_expired_gauge_does_not_hide_a_fresh_one(tmp_path):
    _set_gauge(tmp_path, 0, 2, 999.0)
    _set_gauge(tmp_path, 1, 7, 1.0)
    assert _scrape(tmp_path)[0] == {_PREFERRED: 2.0}


def test_lasting_gauge_stays(tmp_path, recorders):
    recorders[2].gauge(RACK_INFO, 1, "az-a", "environment")
    samples, _ = _scrape(tmp_path, now_s=1e12)
    assert samples == {(RACK_INFO.name, (("rack", "az-a"), ("source", "environment"))): 1.0}


def test_nothing_recorded_is_an_empty_page(tmp_path):
    assert _scrape(tmp_path) == ({}, [])


def test_slot_in_the_making_is_passed_over(tmp_path, recorders):
    recorders[0].count(FETCH_BYTES, 1, "orders", "az-a", "local")
    (tmp_path / "counter_9.db").touch()
    assert list(_scrape(tmp_path)[0].values()) == [1.0]
