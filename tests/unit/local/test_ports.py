"""A start that lost its ports to another process is tried again on others, and no other failure is."""

import pytest

from streaming_app.local.errors import ProcessDied
from streaming_app.local.ports import start_on_free_ports

TAKEN = ProcessDied("Broker 1 ended by itself.", "java.net.BindException: Address already in use")
REFUSED = ProcessDied("Broker 1 ended by itself.", "ERROR Invalid value many for configuration log.retention.hours")


class Starts:
    """Starts that end one after the other as they are told; None is a good one."""

    def __init__(self, *endings: ProcessDied | None) -> None:
        self.endings = list(endings)
        self.end_count = 0

    def start(self) -> None:
        ending = self.endings.pop(0)
        if ending is not None:
            raise ending

    def end(self) -> None:
        self.end_count += 1


def test_a_start_that_goes_well_is_not_ended() -> None:
    starts = Starts(None)
    start_on_free_ports(starts.start, starts.end)
    assert (starts.endings, starts.end_count) == ([], 0)


def test_after_taken_ports_what_runs_is_ended_before_the_next_try() -> None:
    starts = Starts(TAKEN, TAKEN, None)
    start_on_free_ports(starts.start, starts.end)
    assert (starts.endings, starts.end_count) == ([], 2)


def test_the_third_start_on_taken_ports_is_the_last() -> None:
    starts = Starts(TAKEN, TAKEN, TAKEN, None)
    with pytest.raises(ProcessDied) as caught:
        start_on_free_ports(starts.start, starts.end)
    assert caught.value is TAKEN
    assert (starts.endings, starts.end_count) == ([None], 2)


def test_another_reason_is_told_at_once() -> None:
    starts = Starts(REFUSED, None)
    with pytest.raises(ProcessDied) as caught:
        start_on_free_ports(starts.start, starts.end)
    assert caught.value is REFUSED
    assert (starts.endings, starts.end_count) == ([None], 0)
