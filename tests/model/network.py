"""Connections in virtual time: they delay, hold, lose and break what the real ones of `connector.net` carry.

What holds for `connector.net.network` holds here: one connection per broker, opened when first used; answers come in
the order of the requests of a connection; a request that stays unanswered for too long ends its connection and with it
everything pending there; answers that came before the end are good. And as at a real broker, the next request of a
connection is looked at when the one before it is answered.

A request may be lost before the broker took it or after: a cut connection drops what has not arrived, and the answers
to what has. A link that holds keeps messages back, as TCP does while packets are lost, so that an old request may
reach the broker after a newer one that took another connection.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

from connector.fetch.actions import Action

__all__ = ["Answer", "Failure", "NetworkSettings", "SimulatedNetwork", "Take", "Timeline"]


class Timeline:
    """Virtual time, and callbacks at its instants; those of one instant run in the order they were asked for.

    Attributes
    ----------
    now_ms : int
        This instant. Whoever lets time pass sets it, then calls `run_due`.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._serial = 0

    @property
    def next_ms(self) -> int | None:
        """When something is due next."""
        return self._heap[0][0] if self._heap else None

    def at(self, at_ms: int, callback: Callable[[], object]) -> None:
        """Call back at an instant."""
        self._serial += 1
        heapq.heappush(self._heap, (at_ms, self._serial, callback))

    def run_due(self) -> None:
        """Run all that is due."""
        heap = self._heap
        while heap and heap[0][0] <= self.now_ms:
            heapq.heappop(heap)[2]()


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How long a message travels (drawn anew for each), and how patient the client is."""

    shortest_delay_ms: int = 1
    longest_delay_ms: int = 20
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 10_000
    follower_patience_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer to an action."""

    node_id: int
    action: Action
    value: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """A connection ended; these actions get no answer."""

    node_id: int
    actions: tuple[Action, ...]
    problem: str


Take: TypeAlias = Callable[[int, Action, Callable[[object], None]], None]
"""Hand an action to a broker: node, action, and where its answer goes (at once or later)."""


@dataclass(slots=True, eq=False)
class _Request:
    action: Action
    deadline_ms: int


@dataclass(slots=True, eq=False)
class _Connection:
    """`pending` is what the client waits for, `waiting` what arrived while the broker was busy with an older one."""

    node_id: int
    ready_ms: int
    setup_deadline_ms: int
    is_open: bool = True
    is_cut: bool = False
    is_broker_busy: bool = False
    last_arrival_ms: int = 0
    last_answer_ms: int = 0
    pending: list[_Request] = field(default_factory=list)
    waiting: deque[_Request] = field(default_factory=deque)

    @property
    def deadline_ms(self) -> int:
        if self.ready_ms > self.setup_deadline_ms:
            return self.setup_deadline_ms
        return min(each.deadline_ms for each in self.pending)


@dataclass(slots=True)
class _Link:
    """What lies between the client and a broker, and what is wrong with it until when."""

    refused_until_ms: int = 0
    held_until_ms: int = 0
    slow_until_ms: int = 0
    slow_ms: int = 0
    request_lost_until_ms: int = 0
    answer_lost_until_ms: int = 0


class SimulatedNetwork:
    """All connections of one client.

    Parameters
    ----------
    timeline : Timeline
        Where messages are while they travel.
    rng : Random
        Of the delays, and of what becomes of requests whose client went away.
    take : callable
        See `Take`.
    is_up : callable
        Whether a broker runs.
    """

    def __init__(
        self, settings: NetworkSettings, timeline: Timeline, rng: Random, take: Take, is_up: Callable[[int], bool]
    ) -> None:
        self._settings = settings
        self._timeline = timeline
        self._rng = rng
        self._take = take
        self._is_up = is_up
        self._connections: dict[int, _Connection] = {}
        self._links: dict[int, _Link] = {}
        self._inbox: list[tuple[_Connection, Answer | Failure]] = []

    @property
    def has_events(self) -> bool:
        """Whether `take_events` has something."""
        return bool(self._inbox)

    def has_ready(self, node_id: int) -> bool:
        """Tell whether a connection to this broker stands."""
        connection = self._connections.get(node_id)
        return connection is not None and connection.ready_ms <= self._timeline.now_ms

    def submit(self, node_id: int, action: Action, timeout_ms: int) -> None:
        """Send; answer or failure comes out of `take_events`."""
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = self._open(node_id)
        sent_ms = max(self._timeline.now_ms, connection.ready_ms)
        request = _Request(action, sent_ms + timeout_ms)
        connection.pending.append(request)
        connection.last_arrival_ms = max(connection.last_arrival_ms, self._arrival_ms(node_id, sent_ms))
        self._timeline.at(connection.last_arrival_ms, partial(self._on_arrival, connection, request))

    def take_events(self) -> list[Answer | Failure]:
        """Return what happened since the last call, in its order."""
        events = [event for _, event in self._inbox]
        self._inbox.clear()
        return events

    def next_deadline_ms(self) -> int | None:
        """Return when patience with some connection ends."""
        deadlines_ms = [each.deadline_ms for each in self._connections.values() if each.pending]
        return min(deadlines_ms) if deadlines_ms else None

    def check_deadlines(self) -> None:
        """End connections whose time is up."""
        now_ms = self._timeline.now_ms
        for connection in [each for each in self._connections.values() if each.pending]:
            if now_ms >= connection.deadline_ms:
                self._close(connection, "no answer in time")

    def close_unwanted(self, is_wanted: Callable[[Action], bool]) -> list[Action]:
        """End connections on which something unwanted is awaited or unread; return what was wanted and goes with it."""
        unread: dict[int, list[Action]] = {}
        for connection, event in self._inbox:
            actions = (event.action,) if isinstance(event, Answer) else event.actions
            unread.setdefault(id(connection), []).extend(actions)
        open_or_unread = {id(each): each for each in (*self._connections.values(), *(each for each, _ in self._inbox))}
        dropped: list[Action] = []
        for key, connection in open_or_unread.items():
            awaited = [*unread.get(key, ()), *(each.action for each in connection.pending if connection.is_open)]
            if all(map(is_wanted, awaited)):
                continue
            if connection.is_open:
                connection.is_open = False
                del self._connections[connection.node_id]
            self._inbox = [entry for entry in self._inbox if entry[0] is not connection]
            dropped += filter(is_wanted, awaited)
        return dropped

    def cut(self, node_id: int) -> None:
        """Break the connection to a broker: both sides notice at once, and what travels is lost."""
        connection = self._connections.get(node_id)
        if connection is not None:
            connection.is_cut = True
            self._close(connection, "connection reset")

    def refuse(self, node_id: int, until_ms: int) -> None:
        """Let no connection be made until an instant; the one that stands breaks."""
        self._link(node_id).refused_until_ms = until_ms
        self.cut(node_id)

    def hold(self, node_id: int, until_ms: int) -> None:
        """Keep back what is sent from here on, in both directions, until an instant."""
        self._link(node_id).held_until_ms = until_ms

    def slow(self, node_id: int, until_ms: int, slow_ms: int) -> None:
        """Let each message take so much longer until an instant."""
        link = self._link(node_id)
        link.slow_until_ms, link.slow_ms = until_ms, slow_ms

    def lose_request(self, node_id: int, until_ms: int) -> None:
        """Break the connection when the next request arrives, if until then, before the broker takes it."""
        self._link(node_id).request_lost_until_ms = until_ms

    def lose_answer(self, node_id: int, until_ms: int) -> None:
        """Break the connection when the next answer leaves, if until then: the broker did what it was asked."""
        self._link(node_id).answer_lost_until_ms = until_ms

    def _link(self, node_id: int) -> _Link:
        return self._links.setdefault(node_id, _Link())

    def _delay_ms(self) -> int:
        settings = self._settings
        width_ms = settings.longest_delay_ms - settings.shortest_delay_ms + 1
        return settings.shortest_delay_ms + int(self._rng.random() * width_ms)

    def _arrival_ms(self, node_id: int, sent_ms: int) -> int:
        link = self._link(node_id)
        slow_ms = link.slow_ms if sent_ms < link.slow_until_ms else 0
        return max(sent_ms, link.held_until_ms) + self._delay_ms() + slow_ms

    def _open(self, node_id: int) -> _Connection:
        """Connect and negotiate versions: two round trips. A refusal takes one and makes the connection fail."""
        now_ms = self._timeline.now_ms
        ready_ms = self._arrival_ms(node_id, now_ms) + 3 * self._delay_ms()
        connection = _Connection(node_id, ready_ms, now_ms + self._settings.connect_timeout_ms)
        if now_ms < self._link(node_id).refused_until_ms or not self._is_up(node_id):
            connection.is_cut = True
            self._timeline.at(now_ms + 2 * self._delay_ms(), partial(self._on_reset_seen, connection))
        return connection

    def _close(self, connection: _Connection, problem: str) -> None:
        connection.is_open = False
        del self._connections[connection.node_id]
        if connection.pending:
            actions = tuple(each.action for each in connection.pending)
            self._inbox.append((connection, Failure(connection.node_id, actions, problem)))

    def _reset(self, connection: _Connection) -> None:
        """Break at the broker's side; the client sees it when the news arrives."""
        if not connection.is_cut:
            connection.is_cut = True
            self._timeline.at(
                self._arrival_ms(connection.node_id, self._timeline.now_ms), partial(self._on_reset_seen, connection)
            )

    def _on_reset_seen(self, connection: _Connection) -> None:
        if connection.is_open:
            self._close(connection, "connection reset")

    def _on_arrival(self, connection: _Connection, request: _Request) -> None:
        if connection.is_cut:
            return
        if not self._is_up(connection.node_id):
            self._reset(connection)
            return
        if not connection.is_open and self._rng.random() < 0.5:
            return  # the client closed it before this was on the wire
        link = self._link(connection.node_id)
        if self._timeline.now_ms < link.request_lost_until_ms:
            link.request_lost_until_ms = 0
            self._reset(connection)
            return
        connection.waiting.append(request)
        self._take_next(connection)

    def _take_next(self, connection: _Connection) -> None:
        if connection.is_broker_busy or not connection.waiting or connection.is_cut:
            return
        connection.is_broker_busy = True
        request = connection.waiting.popleft()
        self._take(connection.node_id, request.action, partial(self._on_taken, connection, request))

    def _on_taken(self, connection: _Connection, request: _Request, value: object) -> None:
        """Send an answer, and look at the next request."""
        connection.is_broker_busy = False
        if connection.is_cut:
            return
        link = self._link(connection.node_id)
        if self._timeline.now_ms < link.answer_lost_until_ms:
            link.answer_lost_until_ms = 0
            self._reset(connection)
            return
        arrival_ms = self._arrival_ms(connection.node_id, self._timeline.now_ms)
        connection.last_answer_ms = max(connection.last_answer_ms, arrival_ms)
        self._timeline.at(connection.last_answer_ms, partial(self._on_answer, connection, request, value))
        self._take_next(connection)

    def _on_answer(self, connection: _Connection, request: _Request, value: object) -> None:
        if connection.is_open and not connection.is_cut:
            connection.pending.remove(request)
            self._inbox.append((connection, Answer(connection.node_id, request.action, value)))
