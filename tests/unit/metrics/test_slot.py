"""A worker's slot: who gets which, that counters go on, and that recording does no harm."""

import logging
import math
import threading
from pathlib import Path

import pytest

from connector.errors import LocalViolation
from connector.metrics.catalog import FETCH_BYTES, PREFERRED_READ_REPLICA, RACK_INFO, READ_REPLICA_CHANGES
from connector.metrics.executor_folder import counter_path, gauge_path
from connector.metrics.slot import SlotRecorder
from connector.metrics.value_file import ValueFile, read_values


@pytest.fixture
def open_recorder(tmp_path):
    opened = []

    def open_one():
        opened.append(SlotRecorder(tmp_path))
        return opened[-1]

    yield open_one
    for recorder in opened:
        recorder.close()


def _values(path: Path) -> list[float]:
    return [value for _, value, _ in read_values(path)]


def test_each_living_recorder_has_its_own_slot(open_recorder):
    assert [open_recorder().slot for _ in range(3)] == [0, 1, 2]


def test_lowest_freed_slot_is_taken_again(open_recorder, tmp_path):
    first, second, _ = (open_recorder() for _ in range(3))
    second.close()
    first.close()
    assert [open_recorder().slot for _ in range(3)] == [0, 1, 3]
    assert len(list(tmp_path.iterdir())) == 4 * 2


def test_next_holder_continues_the_counters(open_recorder, tmp_path):
    for round_number in range(1, 4):
        recorder = open_recorder()
        recorder.count(FETCH_BYTES, 100, "orders", "az-a", "local")
        recorder.close()
        assert _values(counter_path(tmp_path, 0)) == [100.0 * round_number]


def test_zero_makes_a_series(open_recorder, tmp_path):
    open_recorder().count(READ_REPLICA_CHANGES, 0, "redirect")
    assert _values(counter_path(tmp_path, 0)) == [0.0]


def test_each_label_value_has_its_own_series(open_recorder, tmp_path):
    recorder = open_recorder()
    recorder.count(FETCH_BYTES, 1, "orders", "az-a", "local")
    recorder.count(FETCH_BYTES, 2, "orders", "az-b", "remote")
    recorder.count(FETCH_BYTES, 4, "users", "az-a", "local")
    recorder.count(FETCH_BYTES, 8, "orders", "az-a", "local")
    assert sorted(_values(counter_path(tmp_path, 0))) == [2.0, 4.0, 9.0]


def test_gauges_carry_their_time_unless_they_last(open_recorder, tmp_path):
    recorder = open_recorder()
    recorder.gauge(PREFERRED_READ_REPLICA, 3, "orders", "0")
    recorder.gauge(PREFERRED_READ_REPLICA, -1, "orders", "0")
    recorder.gauge(RACK_INFO, 1, "az-a", "environment")
    (preferred, set_at_s), (info, info_at_s) = [(v, t) for _, v, t in read_values(gauge_path(tmp_path, 0))]
    assert (preferred, info) == (-1.0, 1.0)
    assert abs(set_at_s - gauge_path(tmp_path, 0).stat().st_atime) < 60
    assert info_at_s == math.inf


def test_threads_lose_nothing(open_recorder, tmp_path):
    recorder = open_recorder()

    def count_many():
        for index in range(5_000):
            recorder.count(FETCH_BYTES, 1, "orders", f"az-{index % 7}", "remote")

    threads = [threading.Thread(target=count_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(_values(counter_path(tmp_path, 0))) == 20_000


@pytest.mark.parametrize(
    ("spec", "label_values"),
    [
        pytest.param(PREFERRED_READ_REPLICA, ("orders", "0"), id="a gauge is not counted"),
        pytest.param(FETCH_BYTES, ("orders",), id="too few labels"),
        pytest.param(READ_REPLICA_CHANGES, ("redirect", "az-a"), id="too many labels"),
    ],
)
def test_misuse_is_our_bug(open_recorder, spec, label_values):
    with pytest.raises(LocalViolation, match=spec.name):
        open_recorder().count(spec, 1, *label_values)


def test_counter_is_not_set_as_a_gauge(open_recorder):
    with pytest.raises(LocalViolation, match="is a counter"):
        open_recorder().gauge(READ_REPLICA_CHANGES, 1, "redirect")


def test_counter_never_falls(open_recorder):
    with pytest.raises(LocalViolation, match="a counter never falls"):
        open_recorder().count(READ_REPLICA_CHANGES, -1, "redirect")


def test_closed_recorder_drops_facts_and_leaves_the_slot_to_others(open_recorder, tmp_path):
    first = open_recorder()
    first.count(READ_REPLICA_CHANGES, 1, "redirect")
    first.close()
    first.close()
    second = open_recorder()
    first.count(READ_REPLICA_CHANGES, 100, "redirect")
    first.gauge(RACK_INFO, 100, "az-a", "option")
    assert second.slot == 0
    assert _values(counter_path(tmp_path, 0)) == [1.0]
    assert _values(gauge_path(tmp_path, 0)) == []


def test_series_without_room_is_dropped_with_one_warning(open_recorder, tmp_path, monkeypatch, caplog):
    recorder = open_recorder()
    recorder.count(READ_REPLICA_CHANGES, 1, "redirect")

    def refuse(file, key):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full_disk, caplog.at_level(logging.WARNING):
        full_disk.setattr(ValueFile, "add", refuse)
        recorder.count(READ_REPLICA_CHANGES, 5, "broker_down")
        recorder.gauge(RACK_INFO, 1, "az-a", "option")
        recorder.count(READ_REPLICA_CHANGES, 1, "redirect")
    assert _values(counter_path(tmp_path, 0)) == [2.0]
    assert [record.message for record in caplog.records] == [
        "no room for further metrics of this worker, reading goes on: [Errno 28] No space left on device"
    ]


def test_recorder_notices_that_its_files_were_removed(open_recorder, tmp_path):
    recorder = open_recorder()
    assert recorder.is_current()
    counter_path(tmp_path, 0).unlink()
    assert not recorder.is_current()
    assert open_recorder().slot == 0
    assert not recorder.is_current()


def test_slot_that_can_not_be_used_is_not_kept(open_recorder, tmp_path):
    gauge_path(tmp_path, 0).write_bytes(b"\xff\x00\x00\x00" * 100)
    with pytest.raises(OSError, match="damaged"):
        open_recorder()
    gauge_path(tmp_path, 0).unlink()
    assert open_recorder().slot == 0
