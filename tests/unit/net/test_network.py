"""Many connections at once, to sockets that take connections and say nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

import pytest

from connector.net.clock import monotonic_ms
from connector.net.connection import ConnectionLimits, Exchange
from connector.net.network import Address, Network
from connector.net.transport import TcpTransports
from connector.wire import metadata
from connector.wire.versions import Api


@pytest.fixture
def silent_brokers() -> Iterator[list[Address]]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    yield [listener.getsockname() for listener in listeners]
    for listener in listeners:
        listener.close()


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network(TcpTransports(-1), "client", ConnectionLimits(10_000), monotonic_ms)
    yield network
    network.close()


def exchange(subject: str) -> Exchange:
    return Exchange(
        Api.METADATA, partial(metadata.encode_request, ["t"]), metadata.decode_reply, subject, timeout_ms=10_000
    )


def is_kept(each: Exchange) -> bool:
    return bool(each.subject == "kept")


def test_what_is_still_wanted_keeps_its_connection_and_the_rest_is_closed(
    network: Network, silent_brokers: list[Address]
) -> None:
    network.submit(silent_brokers[0], "1", exchange("kept"))
    network.submit(silent_brokers[1], "2", exchange("given up"))
    assert network.close_unwanted(is_kept) == ()
    assert network.close_unwanted(lambda _: False) == ()
    # The second call closed the connection that the first one had left, and with it what nobody wants any more.
    network.submit(silent_brokers[0], "1", exchange("kept"))
    kept = exchange("kept")
    network.submit(silent_brokers[1], "2", kept)
    network.submit(silent_brokers[1], "2", exchange("given up"))
    assert network.close_unwanted(is_kept) == (kept,), "lost with the connection that it shared"


def test_a_failure_that_nobody_has_heard_of_yet_is_told(network: Network, silent_brokers: list[Address]) -> None:
    unwanted, kept = exchange("given up"), exchange("kept")
    nowhere = ("256.256.256.256", 1)
    network.submit(nowhere, "3", unwanted)
    network.submit(nowhere, "3", kept)
    assert network.close_unwanted(is_kept) == (kept,)
    assert network.wait_events(0) == []
