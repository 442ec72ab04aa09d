"""Every step of the two state machines that run per topic-partition: what leads to it, and what is asked next.

A row names a pair of state and event. It brings an engine into the state, lets the event happen through public calls
alone, and says what the engine does then; that the pair was met on the way is recorded in the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import pytest

from connector.config.settings import ReplicaSelection
from connector.fetch import progress, replica
from connector.fetch.actions import SendFetch, SendListOffsets, SendOffsetForLeaderEpoch
from connector.fetch.progress import POSITION_TRANSITIONS, PositionEvent, PositionState
from connector.fetch.replica import REPLICA_TRANSITIONS, ReplicaChoices, ReplicaEvent, ReplicaState
from connector.model import EARLIEST_TIMESTAMP, NO_EPOCH, NO_NODE, OffsetRange
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import EPOCH, FOLLOWER, LEADER, OTHER, SETTINGS, T0, Driver, view, where

NEXT_LEADER = view(leader=OTHER, epoch=6)
Pair: TypeAlias = tuple[StrEnum, StrEnum]


class Recorded(dict[Pair, StrEnum]):
    """A table of transitions that remembers which were taken."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        super().__init__(table)
        self.taken: list[Pair] = []

    def __getitem__(self, pair: Pair) -> StrEnum:
        self.taken.append(pair)
        return super().__getitem__(pair)


# -------------------------------------------------------------------------- whether a position may be read on from


def fetching() -> Driver:
    """A position whose leader epoch is known, and is the leader's."""
    return Driver(OffsetRange(T0, 100, 200, EPOCH), is_data_loss_fatal=False)


def in_doubt() -> Driver:
    driver = fetching()
    driver.metadata(NEXT_LEADER)
    return driver


def validated() -> Driver:
    """A position that the leader refused although it knows its epoch."""
    driver = fetching()
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    driver.epoch_ends(driver.only(SendOffsetForLeaderEpoch), EPOCH, 100)
    return driver


def awaiting_log_start() -> Driver:
    driver = validated()
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    return driver


def awaiting_log_end() -> Driver:
    driver = awaiting_log_start()
    driver.offsets(driver.only(SendListOffsets), 0)
    return driver


def asks(driver: Driver) -> str:
    """Return what is asked next of the position."""
    action = driver.next_action()
    match action:
        case SendFetch():
            return "records"
        case SendOffsetForLeaderEpoch():
            return "end of its epoch"
        case SendListOffsets():
            return "log start" if action.queries[0].timestamp == EARLIEST_TIMESTAMP else "log end"
    raise AssertionError(action)


P, E = PositionState, PositionEvent
POSITION_STEPS: dict[
    tuple[PositionState, PositionEvent], tuple[Callable[[], Driver], Callable[[Driver], object], str]
] = {
    (P.FETCHING, E.LEADER_CHANGED): (fetching, lambda d: d.metadata(NEXT_LEADER), "end of its epoch"),
    (P.FETCHING, E.REFUSED_UNCHECKED): (
        fetching,
        lambda d: d.answer(d.fetch(), code=codes.OFFSET_OUT_OF_RANGE),
        "end of its epoch",
    ),
    (P.FETCHING, E.REFUSED): (validated, lambda d: d.answer(d.fetch(), code=codes.OFFSET_OUT_OF_RANGE), "log start"),
    (P.FETCHING, E.MOVED): (fetching, lambda d: d.answer(d.fetch(), next_offset=110), "records"),
    (P.AWAIT_VALIDATION, E.LEADER_CHANGED): (in_doubt, lambda d: d.metadata(view(epoch=7)), "end of its epoch"),
    (P.AWAIT_VALIDATION, E.EPOCH_VALID): (
        in_doubt,
        lambda d: d.epoch_ends(d.only(SendOffsetForLeaderEpoch), EPOCH, 100),
        "records",
    ),
    (P.AWAIT_VALIDATION, E.MOVED): (
        in_doubt,
        lambda d: d.epoch_ends(d.only(SendOffsetForLeaderEpoch), EPOCH, 90),
        "records",
    ),
    (P.AWAIT_LOG_START, E.LEADER_CHANGED): (
        awaiting_log_start,
        lambda d: d.metadata(NEXT_LEADER),
        "end of its epoch",
    ),
    (P.AWAIT_LOG_START, E.LOG_START_KNOWN): (
        awaiting_log_start,
        lambda d: d.offsets(d.only(SendListOffsets), 0),
        "log end",
    ),
    (P.AWAIT_LOG_END, E.LEADER_CHANGED): (awaiting_log_end, lambda d: d.metadata(NEXT_LEADER), "end of its epoch"),
    (P.AWAIT_LOG_END, E.BOUNDS_KNOWN): (
        awaiting_log_end,
        lambda d: d.offsets(d.only(SendListOffsets), 500),
        "records",
    ),
}


def test_every_step_of_a_position_has_a_row() -> None:
    assert POSITION_STEPS.keys() == POSITION_TRANSITIONS.keys()


@pytest.mark.parametrize("pair", POSITION_STEPS, ids=lambda pair: f"{pair[0]}: {pair[1]}")
def test_step_of_a_position(pair: tuple[PositionState, PositionEvent], monkeypatch: pytest.MonkeyPatch) -> None:
    begin, happen, expected = POSITION_STEPS[pair]
    driver = begin()
    table = Recorded(POSITION_TRANSITIONS)
    monkeypatch.setattr(progress, "POSITION_TRANSITIONS", table)
    happen(driver)
    assert pair in table.taken
    assert asks(driver) == expected


# ------------------------------------------------------------------------- which replica a topic-partition is read from

ASKING, FOLLOWING, LEADER_ONLY = (LEADER, None), (FOLLOWER, None), (LEADER, 10)


def asking() -> Driver:
    return Driver(OffsetRange(T0, 100, 200), follower_wait_ms=0)


def leased() -> Driver:
    driver = asking()
    driver.answer(driver.to_follower(), next_offset=110, batch_epoch=NO_EPOCH)
    return driver


def led() -> Driver:
    """The leader is read in the form that it never redirects, because it goes on naming a broker that is not there."""
    driver = asking()
    in_vain(driver)
    return driver


def of_client() -> Driver:
    return Driver(OffsetRange(T0, 100, 200), follower_wait_ms=0, replica_selection=ReplicaSelection.CLIENT)


def in_vain(driver: Driver) -> None:
    for _ in range(SETTINGS.useless_redirect_limit + 1):
        driver.answer(driver.next_fetch(view()), preferred=19)


def late_ranges(driver: Driver) -> None:
    for _ in range(SETTINGS.behind_limit):
        driver.start(OffsetRange(T0, 110, 200))
        driver.answer(driver.fetch(), high_watermark=110)
        driver.answer(driver.fetch(), next_offset=200)
    driver.start(OffsetRange(T0, 200, 300))


def round_and_round(driver: Driver) -> None:
    for node_id in (OTHER, FOLLOWER, OTHER):
        driver.answer(driver.fetch(), preferred=node_id)


def after(driver: Driver, duration_ms: int) -> None:
    driver.pass_ms(duration_ms)
    driver.start(OffsetRange(T0, 110, 200))
    driver.answer(driver.fetch(), preferred=FOLLOWER)


def left_and_led_by_another(driver: Driver) -> None:
    driver.answer(driver.to_follower(), code=codes.OFFSET_OUT_OF_RANGE)
    driver.metadata(NEXT_LEADER)


R, V = ReplicaState, ReplicaEvent
REPLICA_STEPS: dict[
    tuple[ReplicaState, ReplicaEvent],
    tuple[Callable[[], Driver], Callable[[Driver], object], tuple[int, int | None]],
] = {
    (R.ASKING_LEADER, V.REDIRECTED): (asking, lambda d: d.answer(d.fetch(), preferred=FOLLOWER), FOLLOWING),
    (R.ASKING_LEADER, V.REDIRECTED_IN_VAIN): (asking, in_vain, LEADER_ONLY),
    (R.ASKING_LEADER, V.LEFT): (asking, lambda d: d.answer(d.fetch(), preferred=19), ASKING),
    (R.ASKING_LEADER, V.AVOIDED): (
        of_client,
        lambda d: d.answer(d.fetch(), code=codes.OFFSET_OUT_OF_RANGE),
        LEADER_ONLY,
    ),
    (R.ASKING_LEADER, V.BEHIND): (of_client, late_ranges, LEADER_ONLY),
    (R.ASKING_LEADER, V.LEADER_CHANGED): (asking, left_and_led_by_another, (OTHER, None)),
    (R.LEASED, V.REDIRECTED): (
        leased,
        lambda d: d.answer(d.fetch(), next_offset=120, preferred=OTHER),
        (OTHER, None),
    ),
    (R.LEASED, V.REDIRECTED_IN_VAIN): (leased, round_and_round, LEADER_ONLY),
    (R.LEASED, V.LEFT): (leased, lambda d: d.answer(d.fetch(), code=codes.OFFSET_OUT_OF_RANGE), ASKING),
    (R.LEASED, V.BEHIND): (leased, late_ranges, LEADER_ONLY),
    (R.LEASED, V.LEASE_EXPIRED): (leased, lambda d: after(d, SETTINGS.metadata_max_age_ms + 1), FOLLOWING),
    (R.LEASED, V.LEADER_CHANGED): (leased, lambda d: d.metadata(NEXT_LEADER), (OTHER, None)),
    (R.LEADER_ONLY, V.COOLED_DOWN): (led, lambda d: after(d, SETTINGS.leader_only_ms), FOLLOWING),
    (R.LEADER_ONLY, V.LEADER_CHANGED): (led, lambda d: d.metadata(NEXT_LEADER), (OTHER, None)),
}
UNREACHED_REPLICA_STEPS = {
    # We take no lease where we choose ourselves, and only there a replica is avoided.
    (R.LEASED, V.AVOIDED),
    # Fetch 10 has no field for a preferred replica, and no follower is asked meanwhile.
    (R.LEADER_ONLY, V.REDIRECTED),
    (R.LEADER_ONLY, V.REDIRECTED_IN_VAIN),
    (R.LEADER_ONLY, V.LEFT),
    (R.LEADER_ONLY, V.AVOIDED),
    (R.LEADER_ONLY, V.BEHIND),
}
"""No broker's answer leads to these; `ReplicaChoices` takes them all the same."""


def test_every_step_of_a_replica_choice_has_a_row() -> None:
    assert REPLICA_STEPS.keys() | UNREACHED_REPLICA_STEPS == REPLICA_TRANSITIONS.keys()


@pytest.mark.parametrize("pair", REPLICA_STEPS, ids=lambda pair: f"{pair[0]}: {pair[1]}")
def test_step_of_a_replica_choice(pair: tuple[ReplicaState, ReplicaEvent], monkeypatch: pytest.MonkeyPatch) -> None:
    begin, happen, expected = REPLICA_STEPS[pair]
    driver = begin()
    table = Recorded(REPLICA_TRANSITIONS)
    monkeypatch.setattr(replica, "REPLICA_TRANSITIONS", table)
    happen(driver)
    assert pair in table.taken
    assert where(driver.next_fetch(NEXT_LEADER if expected[0] == OTHER else view())) == expected


# -------------------------------------------------------------------------------------- the choice itself, every pair


def redirect_in_vain(choices: ReplicaChoices) -> None:
    """Send a choice round between two replicas where it is leased, or to one that can't be read where it is not."""
    if choices.preferred(T0, 5) == FOLLOWER:
        choices.on_redirect(T0, OTHER, 5)
        choices.on_redirect(T0, FOLLOWER, 5)
    else:
        for _ in range(3):
            choices.on_redirected_in_vain(T0, 5)


BEGIN: dict[ReplicaState, Callable[[ReplicaChoices], object]] = {
    R.ASKING_LEADER: lambda choices: choices.on_left(T0, 0),
    R.LEASED: lambda choices: choices.on_redirect(T0, FOLLOWER, 0),
    R.LEADER_ONLY: lambda choices: choices.on_avoided(T0, 0),
}
HAPPEN: dict[ReplicaEvent, Callable[[ReplicaChoices], object]] = {
    V.REDIRECTED: lambda choices: choices.on_redirect(T0, OTHER, 5),
    V.REDIRECTED_IN_VAIN: lambda choices: redirect_in_vain(choices),
    V.LEFT: lambda choices: choices.on_left(T0, 5),
    V.AVOIDED: lambda choices: choices.on_avoided(T0, 5),
    V.BEHIND: lambda choices: [choices.on_behind(T0, 5) for _ in range(3)],
    V.LEASE_EXPIRED: lambda choices: choices.on_left(T0, 301),
    V.COOLED_DOWN: lambda choices: choices.on_left(T0, 100),
    V.LEADER_CHANGED: lambda choices: choices.on_leader_changed(T0),
}
THEN = {
    R.ASKING_LEADER: (NO_NODE, False),
    R.LEASED: (OTHER, False),
    R.LEADER_ONLY: (NO_NODE, True),
}


@pytest.mark.parametrize("pair", REPLICA_TRANSITIONS, ids=lambda pair: f"{pair[0]}: {pair[1]}")
def test_a_choice_takes_every_step(pair: tuple[ReplicaState, ReplicaEvent], monkeypatch: pytest.MonkeyPatch) -> None:
    choices = ReplicaChoices(lease_ms=300, leader_only_ms=100, redirect_limit=2, behind_limit=3)
    state, event = pair
    BEGIN[state](choices)
    table = Recorded(REPLICA_TRANSITIONS)
    monkeypatch.setattr(replica, "REPLICA_TRANSITIONS", table)
    HAPPEN[event](choices)
    assert pair in table.taken
    now_ms = 301 if event is V.LEASE_EXPIRED else 100 if event is V.COOLED_DOWN else 5
    assert (choices.preferred(T0, now_ms), choices.is_leader_only(T0, now_ms)) == THEN[REPLICA_TRANSITIONS[pair]]


def test_the_same_node_again_changes_nothing_and_the_lease_ends_when_it_would_have() -> None:
    choices = ReplicaChoices(lease_ms=300, leader_only_ms=100, redirect_limit=2, behind_limit=3)
    assert choices.on_redirect(T0, FOLLOWER, 0)
    for now_ms in (100, 200, 300):
        assert not choices.on_redirect(T0, FOLLOWER, now_ms)
        assert choices.preferred(T0, now_ms) == FOLLOWER
    assert choices.preferred(T0, 301) == NO_NODE
    assert choices.on_redirect(T0, FOLLOWER, 301)


def test_leases_are_found_by_node() -> None:
    choices = ReplicaChoices(lease_ms=300, leader_only_ms=100, redirect_limit=2, behind_limit=3)
    choices.on_redirect(T0, FOLLOWER, 0)
    assert (choices.leases_on(FOLLOWER), choices.leases_on(OTHER)) == ((T0,), ())
    choices.on_left(T0, 0)
    assert choices.leases_on(FOLLOWER) == ()
