"""Runs one history: the fetch engine, a model cluster, and a network between them, in virtual time.

The simulator takes the place of `connector.net.fetcher`: it asks the engine what to send, sends it, waits until the
network has something or the engine wants to be asked again, and hands everything back. It also plays the planner,
which asks the leaders where their logs end and makes ranges of that, and the task, which may be given up half-way and
tried again. A run is a function of its history; nothing else goes in.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeAlias, assert_never

from connector.config.settings import ReplicaSelection
from connector.errors import ConnectorError
from connector.fetch.actions import (
    Action,
    EngineSettings,
    FetchEvents,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.engine import FetchEngine
from connector.model import OffsetRange, TopicPartition
from connector.net.addresses import AddressBook
from connector.records.layout import scan_record_batches
from tests.model import checks
from tests.model.broker_side import BrokerSide, Taken
from tests.model.checks import Violation
from tests.model.cluster import ModelCluster
from tests.model.conduct import Conduct, owner_of
from tests.model.faults import Faults
from tests.model.histories import FOREVER_MS, START_MS, History, PlannerView, ReadPlan
from tests.model.network import Answer, Failure, SimulatedNetwork, Timeline
from tests.model.planner import Planner
from tests.model.witness import Served, Witness

__all__ = ["MakeEngine", "Report", "simulate"]

PATIENCE_MS: Final = 45_000
"""So long after the last fault has healed a read may stand still; less than the engine's own patience."""
SETTLING_READS: Final = 5
"""After so many reads it must be nearby: each may fail for a loss of its own, or end before Metadata is answered."""
TURN_LIMIT: Final = 1_000
"""So many turns at one instant are a spin."""
PURITY_INTERVAL: Final = 8
"""Every so many requests, what `plan` says is asked for twice."""
_BUGS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What an engine (or a model) raises that is wrong in itself."""

MakeEngine: TypeAlias = Callable[[EngineSettings, Callable[[], float]], FetchEngine]


@dataclass(slots=True)
class Report:
    """What came of a history.

    Attributes
    ----------
    trace : list
        Instant, what happened, and a value that tells more.
    """

    history: History
    violation: Violation | None = None
    request_count: int = 0
    delivery_count: int = 0
    virtual_ms: int = 0
    trace: list[tuple[int, str, object]] = field(default_factory=list)


def simulate(history: History, make_engine: MakeEngine = FetchEngine) -> Report:
    """Run a history to its end, or to the first violation."""
    simulation = _Simulation(history, make_engine)
    report = simulation.report
    try:
        simulation.run()
    except Violation as violation:
        report.violation = violation
    except _BUGS as bug:
        report.violation = Violation("no_crash", "".join(traceback.format_exception(bug)))
    report.virtual_ms = simulation.timeline.now_ms
    return report


class _Simulation:
    """One run."""

    def __init__(self, history: History, make_engine: MakeEngine) -> None:
        self._history = history
        self.timeline = Timeline()
        self.report = Report(history)
        self._cluster = ModelCluster(history.cluster, Random(f"{history.seed} cluster"))
        self._network = SimulatedNetwork(
            history.network,
            self.timeline,
            Random(f"{history.seed} network"),
            lambda *request: self._broker_side.take(*request),
            self._cluster.is_running,
        )
        self._faults = Faults(history, self._cluster, self._network, self.timeline, self._note)
        self._engine = make_engine(history.engine, Random(f"{history.seed} jitter").random)
        self._witness = Witness(self._cluster, self._faults, history.engine.isolation_level, lambda: self._engine.view)
        self._broker_side = BrokerSide(self._cluster, self._witness)
        self._planner = Planner(self._cluster, self._faults, history.engine.isolation_level)
        nodes = self._cluster.metadata(1, (), 0).nodes
        self._addresses = AddressBook(tuple((node.host, node.port) for node in nodes.values()))
        self._node_ids = {(node.host, node.port): node_id for node_id, node in nodes.items()}
        self._conduct = Conduct(history.engine)
        self._turn_count = self._progress_ms = 0

    def _note(self, what: str, told: object) -> None:
        self.report.trace.append((self.timeline.now_ms, what, told))

    def run(self) -> None:
        """Set up, read, let all heal, read once more where it is nearest, and close."""
        for topic in self._history.topics:
            self._faults.create_topic(topic.name)
        self._planner.write(self._history.reads[0].writes)
        self._idle_until(START_MS)
        self._planner.on_started(self.timeline.now_ms)
        for plan in self._history.reads:
            self._idle_until(plan.at_ms - plan.gap_ms)
            self._planner.write(plan.writes)
            self._idle_until(self.timeline.now_ms + plan.gap_ms)
            if not self._read(plan):
                self._read(replace(plan, abandon_after_ms=0))
        self._read_nearby()
        self._close()

    def _read_nearby(self) -> None:
        """Let all heal and leases and views grow old, then read: once losses were told, it must be nearby."""
        engine, network = self._history.engine, self._history.network
        settle_ms = engine.metadata_max_age_ms + 2 * network.request_timeout_ms
        self._idle_until(max(self._faults.healed_ms, self.timeline.now_ms) + settle_ms)
        writes = self._history.reads[-1].writes
        everywhere = tuple(each.topic_partition for each in writes)
        plan = ReadPlan(writes, everywhere, 0, 0, PlannerView.FRESH, 1_000_000, knows_epoch=True, knows_topic_id=True)
        is_settled = False
        for read_number in range(SETTLING_READS):
            self._planner.write(writes)
            wait_ms = engine.leader_only_ms + 3 * self._history.cluster.replica_fetch_wait_ms
            self._idle_until(self.timeline.now_ms + wait_ms)
            self._read(plan)
            is_last = read_number == SETTLING_READS - 1
            if (is_settled or is_last) and self._is_nearby(must_be=is_last):
                break
            is_settled = not self._witness.unfinished()

    def _is_nearby(self, *, must_be: bool) -> bool:
        """Tell whether the read was one that ended where it is nearest; if it must be, that is checked."""
        if self._witness.unfinished() or self._history.engine.local_log_bytes > 0:
            return not self._witness.unfinished()
        served_by = self._witness.served_by
        nearest = {each: self._nearest(each) for each in served_by if self._faults.exists(each)}
        if must_be:
            for each, broker_ids in nearest.items():
                checks.reads_nearby(each, served_by[each], broker_ids)
        return all(set(served_by[each][-1:]) <= set(broker_ids) for each, broker_ids in nearest.items())

    def _nearest(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return who is read when all is well: in-sync replicas in our rack where somebody chooses, else the leader."""
        engine, cluster = self._history.engine, self._history.cluster
        is_chosen = engine.replica_selection is ReplicaSelection.CLIENT or (
            engine.replica_selection is ReplicaSelection.BROKER and cluster.selector == "rack_aware"
        )
        isr_ids = self._cluster.isr(topic_partition) if is_chosen else ()
        nearby = tuple(each for each in isr_ids if cluster.racks[each - 1] == engine.rack)
        return nearby or (self._cluster.leader(topic_partition),)

    def _close(self) -> None:
        """Close the sessions, as a process does that ends."""
        timeout_ms = self._history.network.request_timeout_ms
        for action in self._engine.plan_close():
            self._network.submit(action.plan.node_id, action, timeout_ms)
        self._idle_until(self.timeline.now_ms + timeout_ms)
        for node_id in self._node_ids.values():
            if self._cluster.is_running(node_id):
                self._witness.on_sessions(node_id, limit=0)

    # --------------------------------------------------------------------------------------------------------- read

    def _read(self, plan: ReadPlan) -> bool:
        """Plan and read once; False when the read was given up half-way."""
        now_ms = self.timeline.now_ms
        self._network.check_deadlines()
        for event in self._network.take_events():
            self._on_event(event)
        ranges, view = self._planner.plan(plan, now_ms)
        self._note("read", ranges)
        self._witness.on_read_started(ranges)
        self._conduct.on_read_started(len(ranges))
        self._progress_ms = now_ms
        abandon_ms = now_ms + (plan.abandon_after_ms or FOREVER_MS)
        is_failed = False
        try:
            self._on_events(self._engine.on_read_started(ranges, view, now_ms), None, {})
            while not self._engine.is_finished and self.timeline.now_ms < min(abandon_ms, self._deadline_ms()):
                self._turn(min(abandon_ms, self._deadline_ms()))
            if self._engine.is_finished:
                checks.finishes_all(self._witness.unfinished())
            elif self.timeline.now_ms < abandon_ms:
                is_failed = True
                self._witness.on_stuck(self.timeline.now_ms)
        except ConnectorError as error:
            is_failed = True
            self._note("error", error)
            self._witness.on_error(error)
            self._conduct.on_error(self._witness.positions)
        is_abandoned = not self._engine.is_finished and not is_failed
        self._end_read(ranges, is_failed=is_failed, is_abandoned=is_abandoned)
        return not is_abandoned

    def _deadline_ms(self) -> int:
        return max(self._progress_ms, self._faults.healed_ms) + PATIENCE_MS

    def _end_read(self, ranges: Sequence[OffsetRange], *, is_failed: bool, is_abandoned: bool) -> None:
        self._note("read ended", "failed" if is_failed else "abandoned" if is_abandoned else "finished")
        self._engine.on_read_ended()
        self._conduct.on_read_ended()
        for action in self._network.close_unwanted(_is_metadata):
            self._on_unanswered(action, "the connection was closed at the end of a read")
        self._witness.on_read_ended(is_abandoned=is_abandoned)
        if not is_abandoned:
            self._planner.on_read_ended(ranges, is_failed=is_failed)

    def _turn(self, until_ms: int) -> None:
        """Send what is due, wait for something to happen, and send what is due after it (`Fetcher._turn`)."""
        self._send_due()
        now_ms = self.timeline.now_ms
        self._wait(min(until_ms, self._engine.wake_at_ms(now_ms)))
        self._turn_count = self._turn_count + 1 if self.timeline.now_ms == now_ms else 0
        if self._turn_count > TURN_LIMIT:
            raise Violation("time_passes", f"{TURN_LIMIT} turns at {now_ms} ms")
        delivery_count = self.report.delivery_count
        for event in self._network.take_events():
            self._on_event(event)
        if self.report.delivery_count > delivery_count:
            self._send_due()
            self._pause_consumer()

    def _pause_consumer(self) -> None:
        pause_ms, self._faults.consumer_pause_ms = self._faults.consumer_pause_ms, 0
        if pause_ms:
            self._note("pause", pause_ms)
            self._idle_until(self.timeline.now_ms + pause_ms)
            self._engine.on_resumed(pause_ms)

    # --------------------------------------------------------------------------------------------------------- time

    def _wait(self, until_ms: int) -> None:
        """Let time pass until the network has something for the client."""
        while not self._network.has_events and self.timeline.now_ms < until_ms:
            self._step(until_ms, self._network.next_deadline_ms())
            self._network.check_deadlines()

    def _idle_until(self, until_ms: int) -> None:
        """Let time pass while the client does not look at its connections."""
        while self.timeline.now_ms < until_ms:
            self._step(until_ms, None)

    def _step(self, until_ms: int, deadline_ms: int | None) -> None:
        timeline, cluster = self.timeline, self._cluster
        for due_ms in (timeline.next_ms, cluster.next_event_ms(timeline.now_ms), deadline_ms):
            if due_ms is not None and due_ms < until_ms:
                until_ms = due_ms
        timeline.now_ms = max(timeline.now_ms, until_ms)
        cluster.advance(timeline.now_ms)
        timeline.run_due()

    # --------------------------------------------------------------------------------------------------------- send

    def _send_due(self) -> None:
        now_ms = self.timeline.now_ms
        actions = self._engine.plan(now_ms)
        if self.report.request_count % PURITY_INTERVAL == 0:
            checks.plans_without_effect(actions, self._engine.plan(now_ms))
        for action in actions:
            self._engine.on_sent(action, now_ms)
            self._send(action)

    def _send(self, action: Action) -> None:
        """Check that it may be sent, and send it (`Fetcher._send`)."""
        network, now_ms = self._history.network, self.timeline.now_ms
        timeout_ms = network.request_timeout_ms
        if isinstance(action, SendMetadata):
            address, _ = self._addresses.any_broker(
                self._engine.view, lambda each: self._network.has_ready(self._node_ids[each])
            )
        else:
            address, _ = self._addresses.of_node(self._engine.view, owner_of(action))
        node_id = self._node_ids[address]
        self._note(f"send to {node_id}", action)
        self._conduct.on_sent(action, now_ms)
        if isinstance(action, SendFetch):
            checks.asks_at_the_position(action, self._witness.positions)
            if not all(each.from_leader for each in action.asked.values()):
                timeout_ms = min(timeout_ms, action.plan.max_wait_ms + network.follower_patience_ms)
        self.report.request_count += 1
        self._network.submit(node_id, action, timeout_ms)

    # ------------------------------------------------------------------------------------------------------ receive

    def _on_event(self, event: Answer | Failure) -> None:
        """Hand the engine what happened (`Fetcher._on_event`)."""
        now_ms = self.timeline.now_ms
        if isinstance(event, Failure):
            self._note(f"failure of {event.node_id}", event.problem)
            self._addresses.on_failed(
                next(each for each, node_id in self._node_ids.items() if node_id == event.node_id)
            )
            self._conduct.on_failure({owner_of(each) for each in event.actions})
            for action in event.actions:
                self._on_unanswered(action, event.problem)
            return
        action, value = event.action, event.value
        self._note(f"answer of {event.node_id}", value.reply if isinstance(value, Taken) else value)
        self._conduct.on_settled(action)
        engine = self._engine
        served: dict[TopicPartition, Served] = {}
        match action:
            case SendMetadata():
                events = engine.on_metadata(value, now_ms)
            case SendFetch():
                reply, served = value
                if reply.throttle_ms:
                    self._conduct.on_throttled(event.node_id, now_ms + reply.throttle_ms)
                scans = {
                    each.topic_partition: scan_record_batches(each.records, each.topic_partition)
                    for each in reply.partitions
                    if len(each.records)
                }
                events = engine.on_fetch_reply(action, reply, scans, now_ms)
                self._witness.on_received(event.node_id, reply, engine.session(event.node_id))
            case SendListOffsets():
                events = engine.on_offsets(action, value, now_ms)
            case SendOffsetForLeaderEpoch():
                events = engine.on_epoch_end_offsets(action, value, now_ms)
            case SendDescribeLogDirs():
                events = engine.on_log_dirs(action, value, now_ms)
            case _:
                assert_never(action)
        self._on_events(events, action, served)

    def _on_unanswered(self, action: Action, problem: str) -> None:
        self._conduct.on_settled(action)
        self._on_events(self._engine.on_node_failed(action, problem, self.timeline.now_ms), action, {})

    def _on_events(self, events: FetchEvents, sent: Action | None, served: dict[TopicPartition, Served]) -> None:
        if events.deliveries or events.decisions:
            self._note("events", events)
        if events.deliveries:
            self._progress_ms = self.timeline.now_ms
        self.report.delivery_count += len(events.deliveries)
        self._witness.on_events(events, served)
        for each in events.deliveries:
            if each.topic_partition in served:
                self._conduct.on_delivered(served[each.topic_partition].node_id)
        self._conduct.on_view(self._engine.view)
        self._conduct.on_decisions(events.decisions, sent, self.timeline.now_ms)


def _is_metadata(action: Action) -> bool:
    """Tell whether an answer outlives the read that asked: it is about the cluster."""
    return isinstance(action, SendMetadata)
