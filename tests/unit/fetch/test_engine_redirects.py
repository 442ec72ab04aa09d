"""Redirects that lead nowhere, followers that are late: how the engine gets on, and when it tries them again."""

from __future__ import annotations

from typing import Any

import pytest

from connector.fetch.actions import LEADER_ONLY_VERSION, SendFetch
from connector.model import NO_EPOCH, NO_NODE, ClusterView, OffsetRange, ReplicaChange
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    FOLLOWER,
    LEADER,
    NODES,
    OTHER,
    SETTINGS,
    T0,
    T1,
    Driver,
    Said,
    changes,
    info,
    positions,
    spans,
    view,
    where,
)

ASKING, FOLLOWING, LEADER_ONLY = (LEADER, None), (FOLLOWER, None), (LEADER, LEADER_ONLY_VERSION)
LEADER_ONLY_MS = SETTINGS.leader_only_ms
WAIT_MS = SETTINGS.follower_wait_ms


# ------------------------------------------------------------------------------------------- redirects without use


@pytest.mark.parametrize("code", [codes.OFFSET_OUT_OF_RANGE, codes.NOT_LEADER_OR_FOLLOWER, codes.KAFKA_STORAGE_ERROR])
def test_redirects_are_followed_twice_without_records_and_then_the_leader_is_read(code: int) -> None:
    # 2.2, "consequence": Java alternates for ever. Reference 11.3.
    driver = Driver(OffsetRange(T0, 100, 200))
    asked = []
    for _ in range(5):
        sent = driver.fetch()
        asked.append(where(sent))
        if sent.plan.node_id == LEADER:
            driver.answer(sent, preferred=FOLLOWER)
        else:
            driver.answer(sent, code=code)
    assert asked == [ASKING, FOLLOWING, ASKING, FOLLOWING, ASKING]
    sent = driver.fetch()
    assert (where(sent), sent.plan.rack) == (LEADER_ONLY, "")
    assert spans(driver.answer(sent, next_offset=110)) == [(T0, 100, 110)]


def leader_only(driver: Driver) -> SendFetch:
    """Follow redirects in vain until the leader is read in the form that it never redirects."""
    for _ in range(SETTINGS.useless_redirect_limit):
        driver.answer(driver.to_follower(), code=codes.OFFSET_OUT_OF_RANGE)
    driver.answer(driver.fetch(), preferred=FOLLOWER)
    sent = driver.fetch()
    assert where(sent) == LEADER_ONLY
    return sent


def test_the_leader_is_asked_for_a_replica_again_after_the_leader_only_period() -> None:
    # franz-go TestIssue885: "leader serves until the offset is in the follower's range, then follower again".
    driver = Driver(OffsetRange(T0, 100, 10_000))
    sent = leader_only(driver)
    began_ms = driver.now_ms
    driver.answer(sent, next_offset=110)
    driver.now_ms = began_ms + LEADER_ONLY_MS - 1
    sent = driver.fetch()
    assert where(sent) == LEADER_ONLY
    driver.pass_ms(1)
    driver.answer(sent, next_offset=120)
    driver.answer(driver.to_follower(), next_offset=130)
    assert where(driver.fetch()) == FOLLOWING


def test_the_leader_only_period_lasts_over_reads() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(leader_only(driver), next_offset=200)
    driver.start(OffsetRange(T0, 200, 300))
    assert where(driver.fetch()) == LEADER_ONLY


def test_a_change_of_leader_ends_the_leader_only_period() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(leader_only(driver), next_offset=110, batch_epoch=NO_EPOCH)
    driver.metadata(view(leader=OTHER, epoch=6))
    assert where(driver.fetch()) == (OTHER, None)


def test_records_in_between_show_that_a_redirect_was_of_use() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    for next_offset in (110, 120, 130, 140):
        driver.answer(driver.to_follower(), next_offset=next_offset)
        driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    assert where(driver.fetch()) == ASKING


def test_one_topic_partitions_redirects_do_not_count_for_another() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    for next_offset in (110, 120):
        driver.answer(driver.fetch(), {T0: Said(preferred=FOLLOWER), T1: Said(next_offset=next_offset)})
        fetches = driver.fetches()
        driver.answer(fetches[FOLLOWER], code=codes.OFFSET_OUT_OF_RANGE)
        driver.answer(fetches[LEADER], high_watermark=next_offset)
        driver.pass_ms(20)
    driver.answer(driver.fetch(), preferred=FOLLOWER)
    fetches = driver.fetches()
    assert (where(fetches[LEADER]), positions(fetches[LEADER])) == (LEADER_ONLY, {T0: 100})
    assert (where(fetches[FOLLOWER]), positions(fetches[FOLLOWER])) == (FOLLOWING, {T1: 120})


def test_what_may_be_redirected_and_what_may_not_go_in_turn_since_a_request_has_one_version() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(leader_only(driver), next_offset=200)
    driver.start(OffsetRange(T0, 200, 300), OffsetRange(T1, 200, 300))
    sent = driver.fetch()
    assert (where(sent), positions(sent)) == (LEADER_ONLY, {T0: 200})
    driver.answer(sent, next_offset=210)
    sent = driver.fetch()
    assert (where(sent), positions(sent)) == (ASKING, {T1: 200})
    driver.answer(sent, next_offset=210)
    assert where(driver.fetch()) == LEADER_ONLY


USELESS = [
    pytest.param(view(), 19, id="unknown broker (librdkafka 0104, franz-go TestAuditPreferredReplicaUnknownBroker...)"),
    pytest.param(view(info(replicas=(1, 3))), FOLLOWER, id="not a replica"),
    pytest.param(view(info(offline=(2,))), FOLLOWER, id="offline"),
    pytest.param(view(info(isr=(1, 3))), FOLLOWER, id="out of sync (KAFKA-14372)"),
    pytest.param(view(nodes={1: NODES[1], 3: NODES[3]}), FOLLOWER, id="a replica, but not in the cluster"),
    pytest.param(view(), LEADER, id="the leader itself, without records"),
]


@pytest.mark.parametrize(("cluster", "named"), USELESS)
def test_a_replica_that_can_not_be_read_is_not_asked_and_metadata_is(cluster: ClusterView, named: int) -> None:
    driver = Driver(OffsetRange(T0, 100, 200), shipped=cluster)
    events = driver.answer(driver.fetch(), preferred=named)
    assert (changes(events), driver.preferred()) == ([ReplicaChange.REPLICA_GONE], NO_NODE)
    assert driver.fetches() == {}, "the leader would answer the same at once"
    assert driver.metadata_count == 1
    assert where(driver.next_fetch(cluster)) == ASKING


@pytest.mark.parametrize(("cluster", "named"), USELESS)
def test_a_leader_that_goes_on_naming_it_is_read_in_the_form_that_it_never_redirects(
    cluster: ClusterView, named: int
) -> None:
    driver = Driver(OffsetRange(T0, 100, 200), shipped=cluster)
    for _ in range(SETTINGS.useless_redirect_limit + 1):
        sent = driver.next_fetch(cluster)
        assert where(sent) == ASKING
        driver.answer(sent, preferred=named)
    sent = driver.next_fetch(cluster)
    assert where(sent) == LEADER_ONLY
    assert spans(driver.answer(sent, next_offset=200)) == [(T0, 100, 200)]


def test_metadata_that_arrives_meanwhile_makes_the_replica_readable() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), shipped=view(nodes={1: NODES[1], 3: NODES[3]}))
    driver.answer(driver.fetch(), preferred=FOLLOWER)
    sent = driver.next_fetch(view())
    assert where(sent) == ASKING
    driver.answer(sent, preferred=FOLLOWER)
    assert where(driver.fetch()) == FOLLOWING


def test_a_redirect_to_a_broker_that_did_not_answer_a_moment_ago_is_not_followed() -> None:
    # sarama #2090: latched to a stopped broker; KAFKA-15390: a fenced broker is named.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.fail(driver.to_follower())
    events = driver.answer(driver.fetch(), preferred=FOLLOWER)
    assert changes(events) == [ReplicaChange.REPLICA_GONE]
    assert where(driver.next_fetch(view())) == ASKING


def test_followers_that_send_us_round_in_a_circle_are_left() -> None:
    # Brokers before 3.3 ran the selector on followers, too (pull 11965).
    driver = Driver(OffsetRange(T0, 100, 200))
    asked = []
    for _ in range(4):
        sent = driver.fetch()
        asked.append(sent.plan.node_id)
        driver.answer(sent, preferred=OTHER if sent.plan.node_id == FOLLOWER else FOLLOWER)
    assert asked == [LEADER, FOLLOWER, OTHER, LEADER]
    assert where(driver.fetch()) == LEADER_ONLY


def test_a_follower_that_names_itself_without_records_is_left() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), preferred=FOLLOWER)
    assert driver.preferred() == NO_NODE
    assert where(driver.next_fetch(view())) == ASKING


# ---------------------------------------------------------------------------------------------- followers that lag


def wait_for_the_leader(driver: Driver, sent: SendFetch, **said: Any) -> tuple[SendFetch, int]:
    """Answer the follower's requests alike until the leader is asked; return that request, and how many there were."""
    count = 0
    while sent.plan.node_id == FOLLOWER:
        driver.answer(sent, **said)
        count += 1
        sent = driver.next_fetch()
    return sent, count


@pytest.mark.parametrize("high_watermark", [90, 100])
def test_a_late_follower_is_waited_for_and_then_the_leader_finishes_the_range(high_watermark: int) -> None:
    # 3.3: between high watermark and log end the answer is empty at once; librdkafka 0104 "HW lags by 3 of 10".
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    began_ms = driver.now_ms
    sent, count = wait_for_the_leader(driver, sent, high_watermark=high_watermark)
    assert WAIT_MS <= driver.now_ms - began_ms <= WAIT_MS + 250
    assert 4 <= count < 15, "answers that come at once must be paced"
    assert (where(sent), sent.plan.rack) == (LEADER_ONLY, "")
    assert driver.preferred() == FOLLOWER
    driver.answer(sent, next_offset=200)
    driver.start(OffsetRange(T0, 200, 300))
    assert where(driver.fetch()) == FOLLOWING, "a follower that was only late is read again"


def test_no_broker_holds_a_request_longer_than_the_wait_that_is_left() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    assert sent.plan.max_wait_ms == 500
    driver.pass_ms(500)
    driver.answer(sent, high_watermark=100)
    sent = driver.next_fetch()
    assert sent.plan.max_wait_ms == 700 - 520


def test_what_the_follower_shows_is_delivered_and_the_wait_begins_anew() -> None:
    # librdkafka 0104: "first 7 delivered, then nothing and no reset, then after catch-up the last 3".
    driver = Driver(OffsetRange(T0, 0, 10))
    sent = driver.to_follower()
    assert spans(driver.answer(sent, next_offset=7, high_watermark=7)) == [(T0, 0, 7)]
    driver.pass_ms(5_000)
    driver.answer(driver.fetch(), high_watermark=7)
    sent = driver.next_fetch()
    assert (where(sent), positions(sent)) == (FOLLOWING, {T0: 7})
    assert spans(driver.answer(sent, next_offset=10, high_watermark=10)) == [(T0, 7, 10)]
    assert driver.engine.is_finished


def test_follower_wait_0_goes_to_the_leader_at_once() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), follower_wait_ms=0)
    sent = driver.to_follower()
    assert sent.plan.max_wait_ms == 0
    assert changes(driver.answer(sent, high_watermark=100)) == [ReplicaChange.FOLLOWER_BEHIND]
    assert where(driver.fetch()) == LEADER_ONLY


def test_a_long_range_is_read_at_the_follower_again_after_a_while() -> None:
    driver = Driver(OffsetRange(T0, 100, 10_000))
    sent, _ = wait_for_the_leader(driver, driver.to_follower(), high_watermark=100)
    driver.pass_ms(LEADER_ONLY_MS)
    driver.answer(sent, next_offset=110)
    assert where(driver.fetch()) == FOLLOWING


@pytest.mark.parametrize("code", [codes.OFFSET_NOT_AVAILABLE, codes.UNKNOWN_LEADER_EPOCH, codes.UNKNOWN_SERVER_ERROR])
def test_a_follower_that_says_not_yet_is_asked_again_with_pauses_and_then_the_leader(code: int) -> None:
    # Redpanda #31580: OFFSET_NOT_AVAILABLE, retried in tight loops by others; 2.3: Java has no pause for 75.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    began_ms = driver.now_ms
    sent, count = wait_for_the_leader(driver, sent, code=code)
    assert count == 1 + SETTINGS.follower_retry_limit
    assert driver.now_ms - began_ms == 20 + 40 + 80 + 160 + 200
    assert where(sent) == LEADER_ONLY
    is_dropped = code == codes.OFFSET_NOT_AVAILABLE
    assert (driver.preferred(), driver.metadata_count) == ((NO_NODE, 1) if is_dropped else (FOLLOWER, 0))


def late_range(driver: Driver, start_offset: int) -> None:
    """Read a range that the follower is late for; the leader finishes it."""
    driver.start(OffsetRange(T0, start_offset, start_offset + 10))
    driver.answer(driver.fetch(), high_watermark=start_offset)
    sent = driver.fetch()
    assert where(sent) == LEADER_ONLY
    driver.answer(sent, next_offset=start_offset + 10)


def timely_range(driver: Driver, start_offset: int) -> None:
    """Read a range that the follower finishes."""
    driver.start(OffsetRange(T0, start_offset, start_offset + 10))
    sent = driver.fetch()
    assert where(sent) == FOLLOWING
    driver.answer(sent, next_offset=start_offset + 10)


def test_a_follower_that_is_late_again_and_again_is_left_for_a_while() -> None:
    # 9.3, pull 12877: old brokers go on naming a replica that does not keep up.
    driver = Driver(OffsetRange(T0, 0, 10), follower_wait_ms=0)
    driver.answer(driver.to_follower(), next_offset=10)
    for start_offset in (10, 20):
        late_range(driver, start_offset)
        assert driver.preferred() == FOLLOWER
    late_range(driver, 30)
    left_ms = driver.now_ms
    assert driver.preferred() == NO_NODE
    driver.start(OffsetRange(T0, 40, 50))
    assert driver.metadata_count == 1
    assert where(driver.fetch()) == LEADER_ONLY
    driver.now_ms = left_ms + LEADER_ONLY_MS
    driver.start(OffsetRange(T0, 40, 50))
    assert where(driver.fetch()) == ASKING, "and then the leader is asked for a replica again"


def test_a_follower_that_keeps_up_in_between_is_kept() -> None:
    driver = Driver(OffsetRange(T0, 0, 10), follower_wait_ms=0)
    driver.answer(driver.to_follower(), next_offset=10)
    offset = 10
    for read in [late_range, late_range, timely_range] * 3:
        read(driver, offset)
        offset += 10
        assert driver.preferred() == FOLLOWER


# ------------------------------------------------------------------------------- a leader that is the leader no more


@pytest.mark.parametrize("code", [codes.REPLICA_NOT_AVAILABLE, codes.OFFSET_NOT_AVAILABLE])
def test_leadership_that_moves_is_noticed_without_waiting_for_the_view_to_grow_old(code: int) -> None:
    # librdkafka #2955 and 0104: "ten times, then leadership moves; consumed within 2 s".
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    for _ in range(10):
        driver.answer(sent, code=code)
        sent = driver.next_fetch(view())
    driver.answer(sent, code=code)
    moved_ms = driver.now_ms
    while sent.plan.node_id == LEADER and driver.now_ms - moved_ms < 2_000:
        sent = driver.next_fetch(view(leader=OTHER, epoch=6))
        if sent.plan.node_id == LEADER:
            driver.answer(sent, code=code)
    assert where(sent) == (OTHER, None)
