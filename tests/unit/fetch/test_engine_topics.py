"""Topics by id (KIP-516): which version names them, and topics that vanish or come back as another one.

Reference 11.9, franz-go #1426: offsets of a topic mean nothing in another of the same name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from connector.config.settings import SessionUse
from connector.errors import BrokerError, LossReason, TopicDeleted, TopicRecreated
from connector.fetch.actions import LAST_VERSION_WITH_NAMES, SendFetch, SendMetadata
from connector.fetch.outcome import Skip
from connector.fetch.topics import decide_topic_loss
from connector.model import (
    NO_EPOCH,
    NO_TOPIC_ID,
    ClusterView,
    ForgottenPartition,
    OffsetRange,
    ReplicaChange,
)
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    FOLLOWER,
    LEADER,
    NODES,
    OTHER,
    SETTINGS,
    T0,
    T1,
    TOPIC_ID,
    Driver,
    Said,
    changes,
    info,
    positions,
    token,
    view,
    where,
)

ANOTHER_ID = UUID(int=71)
PATIENCE_MS = SETTINGS.topic_patience_ms
ALWAYS = replace(SETTINGS, session_use=SessionUse.ALWAYS)
BOTH = (OffsetRange(T0, 0, 1_000), OffsetRange(T1, 0, 1_000))
RECREATED = view(epoch=0, topic_id=ANOTHER_ID)


def missing(code: int = codes.UNKNOWN_TOPIC_OR_PARTITION) -> ClusterView:
    return ClusterView(nodes=dict(NODES), topic_errors={"t": code})


def planned(topic_id: UUID = TOPIC_ID, **given: Any) -> Driver:
    """A range of a topic whose id the planner knew."""
    return Driver(OffsetRange(T0, 100, 200, NO_EPOCH, topic_id), **given)


# ------------------------------------------------------------------------------------------------ ids and versions


@pytest.mark.parametrize(("topic_id", "max_version"), [(TOPIC_ID, None), (None, LAST_VERSION_WITH_NAMES)])
def test_topics_are_named_by_id_where_it_is_known(topic_id: UUID | None, max_version: int | None) -> None:
    # 10.2: "no topic id: v12 request; with id: newest".
    sent = Driver(*BOTH, settings=ALWAYS, shipped=view(topic_id=topic_id)).fetch()
    assert where(sent) == (LEADER, max_version)


def test_a_topic_that_is_forgotten_without_an_id_asks_for_names_too() -> None:
    # 1.2: "any partition in the request or removed from the session".
    driver = Driver(*BOTH, settings=ALWAYS, shipped=view(topic_id=None))
    driver.answer(driver.fetch(), {T0: Said(next_offset=1_000), T1: Said(next_offset=10)}, session_id=123)
    driver.metadata(view())
    sent = driver.fetch()
    assert sent.plan.forgotten[0].topic_partition == T0
    assert [each.topic_id for each in sent.plan.partitions] == [TOPIC_ID]
    assert (token(sent), where(sent)) == (
        (123, 1),
        (LEADER, LAST_VERSION_WITH_NAMES),
    )


def test_the_version_follows_ids_that_appear() -> None:
    # 10.2: "upgrade/downgrade of ids between polls"; the broker answers FETCH_SESSION_TOPIC_ID_ERROR to the first.
    driver = Driver(*BOTH, settings=ALWAYS, shipped=view(topic_id=None))
    driver.answer(driver.fetch(), next_offset=10, session_id=123)
    driver.metadata(view())
    sent = driver.fetch()
    assert (token(sent), where(sent)) == ((123, 1), (LEADER, None))
    driver.answer(sent, error_code=codes.FETCH_SESSION_TOPIC_ID_ERROR)
    sent = driver.fetch()
    assert (token(sent), where(sent)) == ((123, 0), (LEADER, None))


def test_a_topic_that_was_planned_anew_replaces_the_one_in_the_session() -> None:
    # 10.2: "replaced topic: old id forgotten".
    driver = Driver(OffsetRange(T0, 0, 10), settings=ALWAYS)
    driver.answer(driver.fetch(), next_offset=10, session_id=123)
    driver.start(OffsetRange(T0, 0, 10, NO_EPOCH, ANOTHER_ID))
    assert driver.fetches() == {}, "metadata shows the topic that is gone, and its epochs"
    driver.metadata(RECREATED)
    sent = driver.fetch()
    assert [(each.topic_id, each.current_leader_epoch) for each in sent.plan.partitions] == [(ANOTHER_ID, 0)]
    assert (sent.plan.session_id, sent.plan.replaced) == (123, (ForgottenPartition(T0, TOPIC_ID),))


# ----------------------------------------------------------------------------------------- another topic, or none


@pytest.mark.parametrize(
    ("found_id", "trouble_ms", "expected"),
    [
        (ANOTHER_ID, 4_999, None),
        (ANOTHER_ID, 5_000, TopicRecreated),
        (None, 4_999, None),
        (None, 5_000, TopicDeleted),
    ],
)
def test_bad_news_of_a_topic_is_believed_when_it_lasts(
    found_id: UUID | None, trouble_ms: int, expected: type[Exception] | None
) -> None:
    loss = decide_topic_loss("t", TOPIC_ID, found_id, trouble_ms, 5_000)
    assert (None if loss is None else type(loss)) is expected


def until_lost(driver: Driver, cluster: ClusterView) -> int:
    """Answer metadata alike until the engine gives the topic up; return after how long."""
    began_ms = driver.now_ms
    driver.metadata(cluster)
    while driver.now_ms - began_ms < 20_000:
        for action in driver.actions():
            if isinstance(action, SendFetch):
                driver.answer(action, code=codes.UNKNOWN_TOPIC_ID)
            elif isinstance(action, SendMetadata):
                try:
                    driver.metadata(cluster)
                except (TopicDeleted, TopicRecreated):
                    assert driver.now_ms - began_ms >= PATIENCE_MS
                    raise
        wake_ms = driver.engine.wake_at_ms(driver.now_ms)
        assert wake_ms > driver.now_ms
        driver.now_ms = wake_ms
    raise AssertionError("given up by nobody")


def test_a_topic_that_was_created_anew_is_not_read_and_fails_loudly() -> None:
    driver = planned()
    driver.answer(driver.fetch(), code=codes.INCONSISTENT_TOPIC_ID)
    driver.metadata(RECREATED)
    assert driver.fetches() == {}, "its offsets are of another topic"
    began_ms = driver.now_ms
    with pytest.raises(
        TopicRecreated, match=f"topic t was deleted and created again.*{TOPIC_ID}.*{ANOTHER_ID}"
    ) as raised:
        until_lost(driver, RECREATED)
    assert raised.value.reason is LossReason.TOPIC_RECREATED
    assert driver.now_ms - began_ms <= PATIENCE_MS + 1_200


def test_a_topic_that_is_gone_fails_loudly() -> None:
    driver = planned()
    began_ms = driver.now_ms
    with pytest.raises(TopicDeleted, match="topic t was deleted while it was read") as raised:
        until_lost(driver, missing())
    assert raised.value.reason is LossReason.TOPIC_DELETED
    assert driver.now_ms - began_ms <= PATIENCE_MS + 1_200
    assert driver.metadata_count < 30, "metadata is not asked for in a tight loop"


def test_a_topic_that_metadata_shows_under_another_id_is_not_asked_about_in_a_tight_loop() -> None:
    driver = planned()
    with pytest.raises(TopicRecreated):
        until_lost(driver, RECREATED)
    assert driver.metadata_count < 15, "pauses grow to a second"


@pytest.mark.parametrize("news", [RECREATED, missing()], ids=["another id", "missing"])
def test_a_broker_that_lags_behind_for_a_moment_does_no_harm(news: ClusterView) -> None:
    # News of a topic needs time to reach every broker (11.9); a later answer shows the topic that was planned.
    driver = planned()
    driver.fetch()
    driver.metadata(news)
    driver.pass_ms(PATIENCE_MS - 1)
    driver.metadata(view())
    driver.pass_ms(1)
    assert driver.metadata(news).decisions == (), "the time counts from here on"
    driver.pass_ms(PATIENCE_MS - 1)
    assert driver.metadata(news).decisions == ()
    driver.pass_ms(1)
    with pytest.raises((TopicDeleted, TopicRecreated)):
        driver.metadata(news)


def test_an_error_that_is_not_about_existence_does_not_end_the_patience() -> None:
    driver = planned()
    driver.metadata(missing())
    driver.pass_ms(PATIENCE_MS - 1)
    driver.metadata(missing(codes.LEADER_NOT_AVAILABLE))
    driver.pass_ms(1)
    with pytest.raises(TopicDeleted):
        driver.metadata(missing())


def test_bad_news_of_one_read_is_not_counted_in_the_next() -> None:
    driver = planned()
    driver.metadata(missing())
    driver.pass_ms(PATIENCE_MS)
    driver.start(OffsetRange(T0, 100, 200, NO_EPOCH, TOPIC_ID))
    assert driver.metadata(missing()).decisions == ()


def test_where_loss_is_not_fatal_the_ranges_of_the_topic_are_skipped() -> None:
    driver = Driver(*BOTH, is_data_loss_fatal=False)
    driver.metadata(missing())
    driver.pass_ms(PATIENCE_MS)
    events = driver.metadata(missing())
    outcomes = [each.outcome for each in events.decisions]
    assert [each.skipped_count for each in outcomes if isinstance(each, Skip)] == [1_000, 1_000]
    assert driver.engine.is_finished


def test_a_range_without_a_planned_id_takes_the_first_that_it_sees() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.metadata(RECREATED)
    driver.pass_ms(PATIENCE_MS)
    with pytest.raises(TopicRecreated):
        driver.metadata(RECREATED)


@pytest.mark.parametrize("topic_id", [None, NO_TOPIC_ID], ids=["not told", "zero"])
def test_metadata_that_tells_no_id_contradicts_none(topic_id: UUID | None) -> None:
    # 10.2: "id disappears": a broker that is not upgraded yet.
    driver = planned(shipped=view(topic_id=topic_id))
    sent = driver.fetch()
    assert (where(sent), positions(sent)) == ((LEADER, LAST_VERSION_WITH_NAMES), {T0: 100})


def test_a_topic_that_may_not_be_described_fails_at_once() -> None:
    driver = planned()
    with pytest.raises(BrokerError, match="Grant DESCRIBE"):
        driver.metadata(missing(codes.TOPIC_AUTHORIZATION_FAILED))


# ---------------------------------------------------------------------------------------- metadata: when it is asked


def test_a_cold_engine_asks_for_metadata_first() -> None:
    driver = Driver(*BOTH, shipped=ClusterView())
    assert driver.actions() == (SendMetadata(("t",)),)
    driver.pass_ms(1)
    assert driver.actions() == (), "one request at a time"
    driver.metadata(view())
    assert positions(driver.fetch()) == {T0: 0, T1: 0}


def test_metadata_without_an_answer_is_asked_for_again_after_a_growing_pause() -> None:
    driver = Driver(*BOTH, shipped=ClusterView())
    pauses = []
    for _ in range(6):
        began_ms = driver.now_ms
        while not (actions := driver.actions()):
            driver.now_ms = driver.engine.wake_at_ms(driver.now_ms)
        pauses.append(driver.now_ms - began_ms)
        driver.fail(actions[0])
    assert pauses == [0, 100, 200, 400, 800, 1_000]


def test_metadata_is_asked_for_again_when_it_is_old() -> None:
    driver = planned()
    driver.metadata(view())
    driver.pass_ms(SETTINGS.metadata_max_age_ms - 1)
    driver.start(OffsetRange(T0, 100, 200))
    driver.fetch()
    assert driver.metadata_count == 0
    driver.pass_ms(1)
    assert driver.actions() == (SendMetadata(("t",)),)


def test_a_shipped_view_is_used_where_it_knows_more() -> None:
    driver = planned()
    driver.start(OffsetRange(T0, 100, 200), shipped=view(leader=OTHER, epoch=6))
    assert driver.fetch().plan.node_id == OTHER
    driver.start(OffsetRange(T0, 100, 200), shipped=view(leader=LEADER, epoch=5))
    assert driver.fetch().plan.node_id == OTHER, "it is older than what the engine knows"


def test_a_shipped_view_that_knows_no_more_changes_nothing() -> None:
    # The planner's view is as old as the plan; the engine has seen since that broker 2 is not in sync.
    driver = planned()
    driver.metadata(view(info(isr=(1, 3))))
    driver.start(OffsetRange(T0, 100, 200), shipped=view())
    assert changes(driver.answer(driver.fetch(), preferred=FOLLOWER)) == [ReplicaChange.REPLICA_GONE]


def test_metadata_that_tells_no_epoch_is_not_an_older_one() -> None:
    # Java's Metadata takes it as it is; a broker that is not upgraded yet tells none that is reliable (1.2).
    driver = planned()
    driver.metadata(view(leader=OTHER, epoch=NO_EPOCH))
    assert driver.fetch().plan.node_id == OTHER
