"""Connections to many brokers, and one place that waits for all of them."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from connector.errors import BrokerError, ConnectFailed, ConnectorError, ProtocolViolation, TransportError
from connector.net.connection import Answer, Connection, ConnectionLimits, Exchange
from connector.net.transport import TransportFactory

__all__ = ["Address", "Event", "Failure", "Network"]

Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Failure:
    """A connection was lost; these exchanges get no answer."""

    address: Address
    exchanges: tuple[Exchange, ...]
    error: ConnectorError


Event: TypeAlias = Answer | Failure


class Network:
    """Connections by address, opened when first used and kept until they fail.

    Not thread-safe: one thread owns it.

    Parameters
    ----------
    open_transport : TransportFactory
        How to reach a broker.
    client_id : str
        The name brokers see.
    limits : ConnectionLimits
        Of each connection.
    now : callable
        Milliseconds of a clock that never goes back.
    """

    def __init__(
        self, open_transport: TransportFactory, client_id: str, limits: ConnectionLimits, now: Callable[[], int]
    ) -> None:
        self._open_transport = open_transport
        self._client_id = client_id
        self._limits = limits
        self._now = now
        self._selector = selectors.DefaultSelector()
        self._connections: dict[Address, Connection] = {}
        self._failures: list[Failure] = []

    def submit(self, address: Address, node: str, exchange: Exchange) -> None:
        """Send a request to a broker; a failure comes out of `wait_events` like every other event."""
        now_ms = self._now()
        connection = self._connections.get(address)
        if connection is None:
            try:
                transport = self._open_transport(*address)
            except ConnectFailed as error:
                self._failures.append(Failure(address, (exchange,), error))
                return
            connection = Connection(node, transport, self._client_id, self._limits, now_ms)
            self._connections[address] = connection
            self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, address)
        self._attempt(address, partial(self._submit, connection, exchange, now_ms), exchange)

    def wait_events(self, timeout_ms: int) -> list[Event]:
        """Wait until something happens, at most so long; return what did."""
        events: list[Event] = []
        timeout_ms = 0 if self._failures else max(0, min([timeout_ms, *self._time_left_ms()]))
        for key, _ in self._selector.select(timeout_ms / 1000):
            address: Address = key.data
            connection = self._connections[address]
            self._attempt(address, partial(self._move, connection))
            events.extend(connection.take_answers())
        self._check_deadlines()
        events.extend(self._failures)
        self._failures.clear()
        return events

    def has_ready(self, address: Address) -> bool:
        """Tell whether a connection to this address stands."""
        connection = self._connections.get(address)
        return connection is not None and connection.is_ready

    def close_unwanted(self, is_wanted: Callable[[Exchange], bool]) -> tuple[Exchange, ...]:
        """Close the connections on which something is still awaited that nobody wants any more.

        Returns
        -------
        tuple of Exchange
            What was wanted, and is lost with them.
        """
        lost = [exchange for failure in self._failures for exchange in failure.exchanges]
        self._failures.clear()
        for address, connection in list(self._connections.items()):
            if not all(map(is_wanted, connection.pending)):
                lost.extend(connection.pending)
                self._close(address)
        return tuple(filter(is_wanted, lost))

    def close(self) -> None:
        """Close everything."""
        for address in list(self._connections):
            self._close(address)
        self._selector.close()

    def _submit(self, connection: Connection, exchange: Exchange, now_ms: int) -> None:
        connection.submit(exchange, now_ms)
        self._watch(connection)

    def _move(self, connection: Connection) -> None:
        connection.on_ready(self._now())
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_to_write else 0)
        key = self._selector.get_key(connection)
        if key.events != wanted:
            self._selector.modify(connection, wanted, key.data)

    def _attempt(self, address: Address, step: Callable[[], None], also_lost: Exchange | None = None) -> None:
        """Run a step of one connection; what fails there ends that connection and nothing else."""
        try:
            step()
        except (TransportError, ProtocolViolation, BrokerError) as error:
            pending = self._connections[address].pending
            if also_lost is not None and also_lost not in pending:
                pending = (*pending, also_lost)
            self._close(address)
            self._failures.append(Failure(address, pending, error))

    def _check_deadlines(self) -> None:
        now_ms = self._now()
        for address, connection in list(self._connections.items()):
            self._attempt(address, partial(connection.check_deadline, now_ms))

    def _time_left_ms(self) -> list[int]:
        now_ms = self._now()
        deadlines_ms = [connection.deadline_ms() for connection in self._connections.values()]
        return [each - now_ms for each in deadlines_ms if each is not None]

    def _close(self, address: Address) -> None:
        connection = self._connections.pop(address)
        self._selector.unregister(connection)
        connection.close()
