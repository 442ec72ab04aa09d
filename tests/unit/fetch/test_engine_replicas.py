"""Which replica the engine reads when brokers choose it (KIP-392): leases, and what ends them.

Cases of reference 2.1, 2.2, 10.1 and 10.5; `test_engine_redirects` has the loops and late followers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from connector.errors import BrokerError
from connector.fetch.actions import LEADER_ONLY_VERSION, SendListOffsets
from connector.fetch.outcome import Deliver
from connector.model import NO_EPOCH, NO_NODE, ClusterView, OffsetRange, ReplicaChange
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    EPOCH,
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

LEASE_MS = SETTINGS.metadata_max_age_ms


# ------------------------------------------------------------------------------------------------ the leader names it


def test_a_range_begins_at_the_leader_and_tells_our_rack() -> None:
    sent = Driver(OffsetRange(T0, 100, 200)).fetch()
    assert where(sent) == (LEADER, None)
    assert sent.plan.rack == "az-b"
    assert positions(sent) == {T0: 100}
    assert sent.plan.partitions[0].current_leader_epoch == EPOCH


def test_the_leaders_redirect_is_obeyed_at_the_same_position() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.fetch(), preferred=FOLLOWER)
    assert (changes(events), spans(events)) == ([ReplicaChange.REDIRECT], [])
    sent = driver.fetch()
    assert where(sent) == (FOLLOWER, None)
    assert positions(sent) == {T0: 100}
    assert sent.plan.partitions[0].current_leader_epoch == EPOCH, "the leader's epoch, whoever is asked (2.2)"


def test_records_and_a_redirect_in_one_answer_both_count() -> None:
    # 9.1: Java uses the records; librdkafka and franz-go drop them.
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.fetch(), next_offset=110, preferred=FOLLOWER)
    assert spans(events) == [(T0, 100, 110)]
    sent = driver.fetch()
    assert (where(sent), positions(sent)) == ((FOLLOWER, None), {T0: 110})


def test_a_followers_minus_one_keeps_the_choice() -> None:
    # The flip-flop of sarama #2071 and kafka-python 3.x (9.2): nodes 1, 2, 1, 2.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    for next_offset in (110, 120, 130):
        driver.answer(sent, next_offset=next_offset, preferred=NO_NODE)
        sent = driver.fetch()
        assert sent.plan.node_id == FOLLOWER


def test_topic_partitions_of_one_answer_go_their_own_ways() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    driver.answer(driver.fetch(), {T0: Said(preferred=FOLLOWER), T1: Said(next_offset=110)})
    assert {node: positions(sent) for node, sent in driver.fetches().items()} == {
        LEADER: {T1: 110},
        FOLLOWER: {T0: 100},
    }


# --------------------------------------------------------------------------------------------------------- the lease


def test_the_choice_lasts_over_reads_until_its_lease_ends() -> None:
    # 10.1: "expiry t: still valid at t, gone at t+1".
    driver = Driver(OffsetRange(T0, 100, 110))
    driver.answer(driver.to_follower(), next_offset=110)
    assert driver.engine.is_finished
    driver.pass_ms(LEASE_MS)
    driver.start(OffsetRange(T0, 110, 120))
    assert driver.preferred() == FOLLOWER
    assert driver.fetch().plan.node_id == FOLLOWER
    driver.pass_ms(1)
    driver.start(OffsetRange(T0, 110, 120))
    assert driver.preferred() == NO_NODE
    assert driver.fetch().plan.node_id == LEADER


def test_the_leader_is_asked_again_when_the_lease_ends_and_may_name_the_same_replica() -> None:
    # franz-go TestIssue905: the recheck interval returns to the leader and back.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110)
    driver.pass_ms(LEASE_MS + 1)
    driver.start(OffsetRange(T0, 110, 200))
    events = driver.answer(driver.fetch(), preferred=FOLLOWER)
    assert changes(events) == [ReplicaChange.REDIRECT]
    assert driver.fetch().plan.node_id == FOLLOWER


def test_the_same_node_again_neither_extends_the_lease_nor_ends_it() -> None:
    # 2.1. Brokers before 3.3 let a follower answer a preferred replica, too (9.3); these came with records.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.pass_ms(100_000)
    events = driver.answer(sent, next_offset=110, preferred=FOLLOWER)
    assert changes(events) == [None]
    driver.pass_ms(LEASE_MS - 100_000)
    assert driver.preferred() == FOLLOWER
    driver.pass_ms(1)
    assert driver.preferred() == NO_NODE


def test_another_node_replaces_the_choice_and_its_lease() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.pass_ms(100_000)
    events = driver.answer(sent, next_offset=110, preferred=OTHER)
    assert changes(events) == [ReplicaChange.REDIRECT]
    assert driver.fetch().plan.node_id == OTHER
    driver.pass_ms(LEASE_MS)
    assert driver.preferred() == OTHER
    driver.pass_ms(1)
    assert driver.preferred() == NO_NODE


# ------------------------------------------------------------------------------------------------ what ends a lease


@pytest.mark.parametrize("code", [6, 9, 56, 74, 3, 100, 103])
def test_a_followers_error_that_speaks_of_stale_metadata_ends_the_lease(code: int) -> None:
    # 10.1: "cleared and metadata requested, nothing delivered". librdkafka #2988, 0104: from the leader within 2 s.
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.to_follower(), code=code)
    assert (changes(events), spans(events)) == ([ReplicaChange.FOLLOWER_ERROR], [])
    assert driver.preferred() == NO_NODE
    sent = driver.fetch()
    assert (where(sent), positions(sent)) == ((LEADER, None), {T0: 100})
    assert sent.plan.rack == "az-b", "in the form that may be redirected"
    assert driver.metadata_count == 1


def test_a_followers_out_of_range_ends_the_lease_and_nothing_else() -> None:
    # 10.1: "cleared, position unchanged, no reset; next fetch to leader"; no metadata (2.1). Redpanda #16146.
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.to_follower(), code=codes.OFFSET_OUT_OF_RANGE)
    assert changes(events) == [ReplicaChange.OUT_OF_RANGE]
    assert driver.preferred() == NO_NODE
    sent = driver.fetch()
    assert (where(sent), positions(sent)) == ((LEADER, None), {T0: 100})
    assert driver.metadata_count == 0


@pytest.mark.parametrize("code", [codes.CORRUPT_MESSAGE, codes.UNKNOWN_SERVER_ERROR, codes.UNKNOWN_LEADER_EPOCH])
def test_a_followers_error_that_says_nothing_against_it_keeps_the_lease(code: int) -> None:
    # 2.1: "not cleared by"; without metadata. The range goes on at the leader, in the form that it never redirects.
    driver = Driver(OffsetRange(T0, 100, 200), follower_wait_ms=0)
    driver.answer(driver.to_follower(), code=code)
    sent = driver.fetch()
    assert (where(sent), sent.plan.rack) == ((LEADER, LEADER_ONLY_VERSION), "")
    assert (driver.preferred(), driver.metadata_count) == (FOLLOWER, 0)
    driver.answer(sent, next_offset=200)
    driver.start(OffsetRange(T0, 200, 300))
    assert where(driver.fetch()) == (FOLLOWER, None)


@pytest.mark.parametrize("node", ["leader", "follower"])
def test_a_missing_right_is_raised_whoever_says_so(node: str) -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch() if node == "leader" else driver.to_follower()
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        driver.answer(sent, code=codes.TOPIC_AUTHORIZATION_FAILED)


def test_a_silent_follower_loses_all_its_leases_and_the_leader_is_read() -> None:
    # KAFKA-14379, sarama #2090: also of topic-partitions that the request was not about.
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 110))
    driver.answer(driver.fetch(), preferred=FOLLOWER)
    driver.answer(driver.fetch(), {T0: Said(next_offset=110), T1: Said(next_offset=110)})
    assert (driver.preferred(T0), driver.preferred(T1)) == (FOLLOWER, FOLLOWER)
    sent = driver.fetch()
    assert positions(sent) == {T0: 110}
    events = driver.fail(sent)
    assert changes(events) == [ReplicaChange.BROKER_DOWN]
    assert (driver.preferred(T0), driver.preferred(T1)) == (NO_NODE, NO_NODE)
    assert where(driver.fetch()) == (LEADER, None)
    assert driver.metadata_count == 1


def test_a_follower_that_is_down_is_left_for_the_one_that_the_leader_names_next() -> None:
    # librdkafka 0104: "follower broker down, other follower named: all from the other within 2 s".
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.fail(driver.to_follower())
    driver.answer(driver.fetch(), preferred=OTHER)
    assert where(driver.fetch()) == (OTHER, None)


def test_no_answer_about_a_range_that_is_not_read_any_more_changes_nothing() -> None:
    # 10.1: "disconnect after the partition was unassigned: no failure"; the topic was lost meanwhile.
    driver = Driver(OffsetRange(T0, 100, 200), is_data_loss_fatal=False, topic_patience_ms=0)
    sent = driver.to_follower()
    driver.metadata(ClusterView(nodes=dict(NODES), topic_errors={"t": codes.UNKNOWN_TOPIC_OR_PARTITION}))
    assert driver.engine.is_finished
    assert driver.fail(sent).decisions == ()
    assert driver.actions() == ()


def test_an_answer_about_a_range_that_is_not_read_any_more_changes_nothing() -> None:
    # 10.1: "partition unassigned between response and processing: a no-op, no failure".
    driver = Driver(OffsetRange(T0, 100, 200), is_data_loss_fatal=False, topic_patience_ms=0)
    sent = driver.fetch()
    driver.metadata(ClusterView(nodes=dict(NODES), topic_errors={"t": codes.UNKNOWN_TOPIC_OR_PARTITION}))
    events = driver.answer(sent, next_offset=150, preferred=FOLLOWER)
    assert (events.deliveries, events.decisions, driver.preferred()) == ((), (), NO_NODE)


# ---------------------------------------------------------------------------------------------- metadata and leases

MOVED_NODE = {**NODES, LEADER: replace(NODES[LEADER], port=1)}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(view(), FOLLOWER, id="nothing changed: kept"),
        pytest.param(view(info(T1, leader=OTHER, epoch=6)), FOLLOWER, id="another topic-partition's leader: kept"),
        pytest.param(view(epoch=4), FOLLOWER, id="an older epoch: kept"),
        pytest.param(view(leader=OTHER, epoch=6), NO_NODE, id="another leader"),
        pytest.param(view(epoch=6), NO_NODE, id="the same leader, another epoch"),
        pytest.param(view(nodes=MOVED_NODE), NO_NODE, id="the leader's address"),
        pytest.param(view(info(isr=(1, 3))), NO_NODE, id="the replica left the ISR (KAFKA-14372)"),
    ],
)
def test_metadata_ends_a_lease_only_when_the_leader_is_another_or_the_replica_is_no_good(
    cluster: ClusterView, expected: int
) -> None:
    # SubscriptionState.maybeValidatePosition (2.1).
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110, batch_epoch=NO_EPOCH)
    driver.metadata(cluster)
    assert driver.preferred() == expected
    assert driver.fetch().plan.node_id == (expected if expected != NO_NODE else cluster.partitions[T0].leader_id)


def test_a_replica_that_left_the_isr_is_told() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110)
    events = driver.metadata(view(info(isr=(1, 3))))
    assert changes(events) == [ReplicaChange.LEFT_ISR]


UNUSABLE = [
    pytest.param(view(info(replicas=(1, 3), isr=(1, 3))), id="not a replica any more"),
    pytest.param(view(info(offline=(2,))), id="offline"),
    pytest.param(view(nodes={1: NODES[1], 3: NODES[3]}), id="not in the cluster"),
]


@pytest.mark.parametrize("cluster", UNUSABLE)
def test_a_leased_replica_that_metadata_does_not_allow_is_not_asked(cluster: ClusterView) -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110)
    driver.metadata(cluster)
    assert where(driver.fetch()) == (LEADER, None)


@pytest.mark.parametrize("cluster", UNUSABLE)
def test_its_lease_is_over_also_when_it_comes_back(cluster: ClusterView) -> None:
    # AbstractFetch.selectReadReplica clears it (2.1, 2.2): only the leader can name the replica again.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110)
    driver.metadata(cluster)
    driver.answer(driver.fetch(), next_offset=120)
    driver.metadata(view())
    assert driver.preferred() == NO_NODE
    assert driver.fetch().plan.node_id == LEADER


# ------------------------------------------------------------------------------ who answered, not who is who by now


def test_an_out_of_range_of_a_follower_whose_lease_has_ended_is_still_a_followers() -> None:
    # 2.4, note: Java takes it for the leader's then, and resets or raises.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.pass_ms(LEASE_MS + 1)
    driver.engine.on_resumed(LEASE_MS + 1)
    assert driver.preferred() == NO_NODE
    driver.answer(sent, code=codes.OFFSET_OUT_OF_RANGE)
    assert positions(driver.fetch()) == {T0: 100}


def test_an_out_of_range_of_a_follower_that_leads_by_now_is_still_a_followers() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.metadata(view(leader=FOLLOWER, epoch=6))
    driver.answer(sent, code=codes.OFFSET_OUT_OF_RANGE)
    again = driver.fetch()
    assert (where(again), positions(again)) == ((FOLLOWER, None), {T0: 100})
    driver.answer(again, code=codes.OFFSET_OUT_OF_RANGE)
    assert driver.only(SendListOffsets).node_id == FOLLOWER, "now it is the leader's word"


def test_an_out_of_range_of_who_led_when_it_was_asked_is_the_leaders() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    driver.metadata(view(leader=FOLLOWER, epoch=6))
    driver.answer(sent, code=codes.OFFSET_OUT_OF_RANGE)
    assert driver.only(SendListOffsets).node_id == FOLLOWER


def test_nothing_is_asked_elsewhere_while_a_request_is_under_way() -> None:
    # A leader change while the old follower still owes an answer: asking both would give rows twice.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.metadata(view(leader=OTHER, epoch=6))
    assert driver.fetches() == {}
    events = driver.answer(sent, next_offset=150)
    assert spans(events) == [(T0, 100, 150)]


def test_a_lease_that_ends_while_bounds_are_asked_for_does_no_harm() -> None:
    # librdkafka 8001.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110, batch_epoch=NO_EPOCH, preferred=OTHER)
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    sent = driver.only(SendListOffsets)
    driver.pass_ms(LEASE_MS + 1)
    driver.engine.on_resumed(LEASE_MS + 1)
    driver.offsets(sent, 0)
    driver.offsets(driver.only(SendListOffsets), 500)
    assert driver.next_fetch(view()).plan.node_id == LEADER


def test_a_range_ends_by_position_not_by_records() -> None:
    # Control batches and compaction holes (8.2): the scan says 200 although no record below it may be ours.
    driver = Driver(OffsetRange(T0, 100, 150))
    events = driver.answer(driver.fetch(), next_offset=200)
    assert spans(events) == [(T0, 100, 150)]
    assert [type(each.outcome) for each in events.decisions] == [Deliver]
    assert driver.engine.is_finished
