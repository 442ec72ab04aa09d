"""What a local broker is told: its properties, as a value, and the text of the file.

Kafka's own defaults are for servers; what differs here keeps three brokers small and quick to start, to notice a death
and to settle after it, and never changes what a client sees on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming_app.local.ports import HOST

__all__ = ["BrokerAddress", "broker_properties", "properties_text"]

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

SMALL_AND_QUICK: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "controlled.shutdown.enable": "true",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.election.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.io.buffer.size": "262144",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where one broker listens: for clients, and for the controller quorum."""

    node_id: int
    rack: str
    port: int
    controller_port: int


def broker_properties(
    own: BrokerAddress,
    quorum: Sequence[BrokerAddress],
    data_folder: Path,
    *,
    selector: bool,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """Return the properties of one broker that is also a controller; `overrides` win over everything."""
    replica_count = str(min(3, len(quorum)))
    least_in_sync = str(min(2, len(quorum)))
    rack_aware = {"replica.selector.class": RACK_AWARE_SELECTOR} if selector else {}
    return {
        **SMALL_AND_QUICK,
        **rack_aware,
        "process.roles": "broker,controller",
        "node.id": str(own.node_id),
        "broker.rack": own.rack,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{peer.node_id}@{HOST}:{peer.controller_port}" for peer in quorum),
        "listeners": f"PLAINTEXT://{HOST}:{own.port},CONTROLLER://{HOST}:{own.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{own.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_folder),
        "default.replication.factor": replica_count,
        "offsets.topic.replication.factor": replica_count,
        "share.coordinator.state.topic.min.isr": least_in_sync,
        "share.coordinator.state.topic.replication.factor": replica_count,
        "transaction.state.log.min.isr": least_in_sync,
        "transaction.state.log.replication.factor": replica_count,
        **overrides,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file (any character may stand in a value), sorted by key."""
    return "".join(f"{escaped(key, is_key=True)}={escaped(value)}\n" for key, value in sorted(properties.items()))


def escaped(text: str, *, is_key: bool = False) -> str:
    r"""Return `text` as a properties file wants it: backslashes, line ends, leading blanks and non-ASCII escaped."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if is_key:
        special |= {"=": "\\=", ":": "\\:", " ": "\\ "}
    utf16 = "".join(special.get(character, character) for character in text)
    if utf16[:1] in {" ", "#", "!"}:
        utf16 = "\\" + utf16
    return "".join(character if character.isascii() else java_escape(character) for character in utf16)


def java_escape(character: str) -> str:
    r"""Return ``\uXXXX`` for each UTF-16 unit of a character."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
