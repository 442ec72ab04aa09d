"""How the model copies and commits, who is in sync, what retention takes, and how late news are heard."""

from __future__ import annotations

from connector.model import (
    TopicPartition,
)
from connector.wire import error_codes as codes
from tests.model.timers import Timer, Timers
from tests.unit.model.model_driver import T0, Driver, ends, high_watermarks


def test_the_high_watermark_rises_a_round_after_the_copy_and_reaches_followers_when_their_held_fetch_ends() -> None:
    driver = Driver()
    driver.produce(10, settle=False)
    assert ends(driver, 1, 2, 3) == [10, 0, 0]
    driver.pass_ms(1)
    assert (ends(driver, 2, 3), high_watermarks(driver, 1, 2, 3)) == ([10, 10], [0, 0, 0]), "copied, not yet told so"
    driver.pass_ms(1)
    assert high_watermarks(driver, 1, 2, 3) == [10, 0, 0]
    driver.pass_ms(499)
    assert high_watermarks(driver, 2, 3) == [0, 0]
    driver.pass_ms(1)
    assert high_watermarks(driver, 2, 3) == [10, 10], "replica.fetch.wait.max.ms later (KAFKA-9952)"


def test_under_traffic_the_high_watermark_rides_on_the_data() -> None:
    driver = Driver()
    for _ in range(10):
        driver.produce(1, settle=False)
        driver.pass_ms(10)
    assert high_watermarks(driver, 1, 2) == [10, 9]


def test_an_idle_cluster_comes_to_rest() -> None:
    driver = Driver(replica_lag_time_max_ms=5_000)
    driver.produce(5)
    driver.pass_ms(20_000)
    assert driver.cluster.next_event_ms(driver.cluster.now_ms) is None
    assert driver.cluster.isr(T0) == (1, 2, 3)


def test_a_follower_that_is_stuck_holds_the_high_watermark_until_it_leaves_the_isr_and_comes_back() -> None:
    driver = Driver(replica_lag_time_max_ms=10_000)
    driver.pass_ms(60_000)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(10, settle=False)
    driver.pass_ms(9_000)
    assert (driver.cluster.isr(T0), high_watermarks(driver, 1)) == ((1, 2, 3), [0])
    driver.pass_ms(1_500)
    assert (driver.cluster.isr(T0), high_watermarks(driver, 1)) == ((1, 2), [10])
    driver.cluster.resume_replication(T0, 3)
    driver.pass_ms(1_000)
    assert (driver.cluster.isr(T0), high_watermarks(driver, 3)) == ((1, 2, 3), [10])


def test_a_follower_that_is_always_one_batch_behind_stays_in_sync() -> None:
    driver = Driver(replica_lag_time_max_ms=600, replica_round_ms=(15, 15))
    for _ in range(200):
        driver.produce(1, settle=False)
        driver.pass_ms(10)
    assert driver.cluster.isr(T0) == (1, 2, 3)


def silent(driver: Driver) -> None:
    """Write a record to a cluster where nothing has happened for a minute, up to the moment itself."""
    driver.pass_ms(60_000)
    driver.produce(1, settle=False)
    driver.pass_ms(0)


def test_who_was_not_late_yet_is_looked_at_again() -> None:
    driver = Driver(replica_lag_time_max_ms=1_000)
    driver.produce(1, settle=False)
    driver.pass_ms(300)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(1)
    driver.pass_ms(300)
    assert driver.cluster.isr(T0) == (1, 2)


def test_a_leader_counts_on_a_member_of_the_isr_from_the_moment_it_is_one() -> None:
    driver = Driver(metadata_lag_ms=(100, 100), replica_lag_time_max_ms=600)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(1)
    driver.pass_ms(300)
    assert driver.cluster.isr(T0) == (1, 2)
    driver.cluster.create_topic("other", 1, [(2,)])
    driver.cluster.resume_replication(T0, 3)
    driver.pass_ms(20)
    assert driver.cluster.isr(T0) == (1, 2, 3)
    assert driver.cluster._brokers[1].replicas[T0].image.isr_ids == (1, 2, 3)


def test_a_timer_can_be_brought_forward_and_put_off() -> None:
    timers, happened = Timers(), []
    timer = Timer(lambda: happened.append(timers.now_ms))
    timers.hasten(timer, 100)
    timers.hasten(timer, 200)
    assert timers.next_ms() == 100
    timers.set(timer, 300)
    timers.advance(250)
    assert (happened, timers.next_ms()) == ([], 300)
    timers.advance(400)
    assert (happened, timers.now_ms, timers.next_ms()) == ([300], 400, None)


def test_after_a_long_silence_nobody_counts_as_late() -> None:
    driver = Driver(replica_round_ms=(5, 5))
    driver.produce(1)
    silent(driver)
    assert driver.cluster.isr(T0) == (1, 2, 3)
    driver.pass_ms(60_000)
    driver.cluster.stop_broker(3)
    silent_stop = driver.cluster.isr(T0)
    driver.produce(1, settle=False)
    driver.pass_ms(1_000)
    assert (silent_stop, driver.cluster.isr(T0)) == ((1, 2, 3), (1, 2, 3)), "the controller does not know yet"


def test_who_leads_on_in_a_later_epoch_counts_lag_from_then() -> None:
    driver = Driver(replica_round_ms=(5, 5))
    driver.produce(1)
    driver.pass_ms(60_000)
    driver.cluster.bump_epoch(T0)
    driver.produce(1, settle=False)
    driver.pass_ms(0)
    assert driver.cluster.isr(T0) == (1, 2, 3)


def test_a_follower_joins_a_new_leader_only_from_where_its_epoch_begins() -> None:
    """KAFKA-7128: the new leader's high watermark may still be an old one."""
    driver = Driver(replica_lag_time_max_ms=600, replica_fetch_max_bytes=1)
    driver.produce(10)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(1, 1, 1, 1, 1, settle=False)
    driver.pass_ms(450)
    assert (driver.cluster.isr(T0), high_watermarks(driver, 1, 2), ends(driver, 3)) == ((1, 2), [15, 10], [10])
    driver.cluster.pause_replication(T0, 1)
    driver.cluster.elect(T0, 2)
    driver.cluster.resume_replication(T0, 3)
    driver.pass_ms(3)
    assert (driver.cluster.isr(T0), high_watermarks(driver, 2)) == ((1, 2), [10])
    assert not driver.cluster._brokers[2].replicas[T0].may_join_isr(3)
    driver.pass_ms(10)
    assert driver.cluster.isr(T0) == (1, 2, 3)


def test_a_leader_that_has_not_heard_the_last_decision_changes_no_isr() -> None:
    driver = Driver(metadata_lag_ms=(200, 200), replica_lag_time_max_ms=1_000, broker_session_ms=100)
    driver.pass_ms(150)  # broker 2 is late 550 ms after it got stuck, since its last fetch was held for 450 ms
    driver.cluster.pause_replication(T0, 2)
    driver.produce(1, settle=False)
    driver.pass_ms(300)
    driver.cluster.stop_broker(3)
    seen = []
    for _ in range(40):
        driver.pass_ms(10)
        seen.append(driver.cluster.isr(T0))
    assert list(dict.fromkeys(seen)) == [(1, 2, 3), (1, 2), (1,)]


def test_news_do_not_overtake_each_other() -> None:
    driver = Driver()
    broker, heard = driver.cluster._brokers[2], []
    broker.tell(lambda _: heard.append("first"), driver.cluster.now_ms + 100)
    broker.tell(lambda _: heard.append("second"), driver.cluster.now_ms)
    driver.pass_ms(99)
    assert heard == []
    driver.pass_ms(1)
    assert heard == ["first", "second"]


def test_retention_is_each_replicas_own_but_followers_take_over_their_leaders() -> None:
    driver = Driver()
    driver.produce(10, 10, 10)
    driver.cluster.expire_local(T0, 2, 15)
    driver.pass_ms(2_000)
    assert [driver.cluster.log(T0, each).log_start_offset for each in (1, 2, 3)] == [0, 10, 0]
    driver.cluster.delete_records(T0, 25)
    driver.pass_ms(2_000)
    assert [driver.cluster.log(T0, each).log_start_offset for each in (1, 2, 3)] == [25, 25, 25]
    assert driver.read(1, 24, rack="az-b").error_code == codes.OFFSET_OUT_OF_RANGE, (
        "the leader was told where they begin"
    )


def test_nothing_above_the_high_watermark_is_taken() -> None:
    driver = Driver()
    driver.produce(10)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(10, 10, settle=False)
    driver.pass_ms(10)
    driver.cluster.expire_local(T0, 2, 1_000)
    assert driver.cluster.log(T0, 2).log_start_offset == 10
    driver.cluster.delete_records(T0, 1_000)
    assert driver.cluster.log(T0).log_start_offset == 10


def test_a_follower_below_its_leaders_log_start_begins_anew_there() -> None:
    driver = Driver(replica_lag_time_max_ms=500)
    driver.produce(10)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(10, 10)
    driver.cluster.delete_records(T0, 20)
    driver.cluster.resume_replication(T0, 3)
    driver.pass_ms(0)
    log = driver.cluster.log(T0, 3)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (20, 20, 20)
    driver.pass_ms(2_000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (20, 30, 30)
    assert driver.cluster.isr(T0) == (1, 2, 3)


def test_a_topic_made_anew_has_another_id_and_nothing_of_the_old() -> None:
    driver = Driver(metadata_lag_ms=(0, 200))
    driver.produce(10)
    driver.cluster.delete_topic("t")
    topic_id = driver.cluster.create_topic("t", 1, [(1, 2, 3)])
    assert topic_id != driver.topic_id
    driver.cluster.produce(T0, 3)
    driver.pass_ms(5_000)
    assert ends(driver, 1, 2, 3) == [3, 3, 3]
    assert high_watermarks(driver, 1, 2, 3) == [3, 3, 3]


def test_brokers_that_have_not_heard_of_a_topics_end_keep_to_the_old_one() -> None:
    driver = Driver(metadata_lag_ms=(100, 100))
    driver.produce(10, settle=False)
    driver.cluster.delete_topic("t")
    driver.cluster.create_topic("t", 1, [(1, 2, 3)])
    driver.cluster.produce(T0, 3)
    driver.pass_ms(50)
    assert ends(driver, 1, 2) == [3, 0], "a follower of the old topic copies nothing of another"
    other = TopicPartition("v", 0)
    driver.cluster.create_topic("v", 1, [(1, 3)])
    driver.pass_ms(1_000)
    driver.cluster.produce(other, 10)
    driver.cluster.delete_topic("v")
    driver.cluster.create_topic("v", 1, [(2, 3)])
    driver.pass_ms(50)
    assert driver.cluster.high_watermark(other, 1) == 10
    assert driver.cluster.committed_end(other) == 0, "nor does its leader commit anything of it"


def test_news_reach_brokers_late_and_each_acts_by_what_it_has() -> None:
    driver = Driver(metadata_lag_ms=(100, 100))
    driver.cluster.elect(T0, 2)
    views = [driver.cluster.metadata(each, ["t", "u"], driver.cluster.now_ms) for each in (1, 2, 3)]
    assert [each.partitions[T0].leader_id for each in views] == [1, 1, 1]
    assert views[0].topic_errors == {"u": codes.UNKNOWN_TOPIC_OR_PARTITION}
    assert driver.read(2, 0, version=10).error_code == codes.NOT_LEADER_OR_FOLLOWER
    driver.pass_ms(100)
    info = driver.cluster.metadata(3, ["t"], driver.cluster.now_ms).partitions[T0]
    assert (info.leader_id, info.leader_epoch, info.isr_ids) == (2, 1, (1, 2, 3))
    assert driver.read(2, 0, version=10).error_code == codes.NONE


def test_too_few_in_sync_replicas_take_no_records() -> None:
    driver = Driver(topic={"min_insync_replicas": 2}, broker_session_ms=0)
    driver.cluster.stop_broker(2)
    driver.pass_ms(10)
    assert driver.cluster.produce(T0, 1) is not None
    driver.cluster.stop_broker(3)
    driver.pass_ms(10)
    assert driver.cluster.produce(T0, 1) is None
