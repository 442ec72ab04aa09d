from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_app.lifecycle import StopOutcome, stop_between_batches


class ScriptedQuery:
    """A query, and the time it lives in: each time somebody sleeps it goes on to its next state; the last one stays."""

    def __init__(self, states: Sequence[tuple[bool, bool, int | None]]) -> None:
        self._states = list(states)
        self._now_s = 1_000.0
        self.stop_count = 0

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._states[0][0]

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self._states[0][1], "message": "", "isDataAvailable": True}

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        batch_id = self._states[0][2]
        return None if batch_id is None else SimpleNamespace(batchId=batch_id, timestamp=f"time-{batch_id}")

    def stop(self) -> None:
        self.stop_count += 1

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        self._now_s += duration_s
        if len(self._states) > 1:
            self._states.pop(0)


RUNNING, WAITING = (True, True), (True, False)


@pytest.mark.parametrize(
    ("states", "outcome", "stop_count"),
    [
        ([(*WAITING, None)], StopOutcome.BETWEEN_BATCHES, 1),
        ([(*WAITING, 3)], StopOutcome.BETWEEN_BATCHES, 1),
        ([(*RUNNING, 3), (*RUNNING, 3), (*WAITING, 4)], StopOutcome.BETWEEN_BATCHES, 1),
        ([(*RUNNING, 3), (*RUNNING, 3), (*RUNNING, 4)], StopOutcome.BETWEEN_BATCHES, 1),
        ([(*RUNNING, None), (*RUNNING, 0)], StopOutcome.BETWEEN_BATCHES, 1),
        ([(*RUNNING, 3), (*WAITING, 3)], StopOutcome.BETWEEN_BATCHES, 1),
        ([(False, False, 3)], StopOutcome.ENDED_BY_ITSELF, 0),
        ([(*RUNNING, 3), (*RUNNING, 3), (False, False, 3)], StopOutcome.ENDED_BY_ITSELF, 0),
    ],
    ids=[
        "before-the-first-batch",
        "waiting-for-a-trigger",
        "batch-commits-then-waits",
        "next-batch-began-at-once",
        "first-batch-commits",
        "trigger-found-nothing",
        "ended-before",
        "ended-meanwhile",
    ],
)
def test_the_running_trigger_is_waited_for_and_no_other(monkeypatch, states, outcome, stop_count):
    query = ScriptedQuery(states)
    monkeypatch.setattr("streaming_app.lifecycle.time", query)
    assert stop_between_batches(query, timeout_s=30) is outcome
    assert query.stop_count == stop_count


def test_a_batch_that_takes_too_long_is_given_up(monkeypatch):
    query = ScriptedQuery([(*RUNNING, 3)])
    monkeypatch.setattr("streaming_app.lifecycle.time", query)
    began_s = query.monotonic()
    assert stop_between_batches(query, timeout_s=30) is StopOutcome.GAVE_UP_BATCH
    assert 30 <= query.monotonic() - began_s < 31
    assert query.stop_count == 1


def test_progress_of_an_idle_trigger_ends_the_wait_too(monkeypatch):
    query = ScriptedQuery([(*RUNNING, 3), (*RUNNING, 3)])
    progress = iter([("3", 1), ("3", 1), ("3", 2)])  # the same batch id, told again at a later time
    monkeypatch.setattr(
        ScriptedQuery,
        "lastProgress",
        property(lambda _: SimpleNamespace(**dict(zip(("batchId", "timestamp"), next(progress), strict=True)))),
    )
    monkeypatch.setattr("streaming_app.lifecycle.time", query)
    assert stop_between_batches(query, timeout_s=30) is StopOutcome.BETWEEN_BATCHES
