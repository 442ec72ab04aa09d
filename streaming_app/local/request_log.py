"""What the brokers themselves say they served: Kafka's own request log, read back.

A broker with its request logger at DEBUG writes one JSON line per completed request, answer included. For a Fetch it
tells the asking client and its rack, and for every partition the answer's bytes: an account of locality that owes
nothing to the client's own counters.

The line is written after the answer was sent, so a reader can be ahead of it by a moment: wait for the expected
bytes, do not look once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka

__all__ = ["ServedFetch", "TopicNames", "parse_served_fetches", "read_served_fetches"]

LINE_START: Final = b"Completed request:"
FETCH_SIGN: Final = b'"requestApiKeyName":"FETCH"'
CONTROLLER_SIGN: Final = b'"listener":"CONTROLLER"'
PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-\d+(\.[0-9a-f]+-(delete|future|stray))?")


@dataclass(frozen=True, slots=True)
class ServedFetch:
    """What one Fetch answer held for one partition.

    Attributes
    ----------
    node_id, broker_rack
        Who answered.
    client_id, client_rack
        Who asked; the rack is empty when the client named none.
    replica_id
        -1 for a consumer, else the node id of the broker whose replica fetcher asked.
    topic
        The name; the topic id's text when the topic is gone and nobody knows its name any more.
    record_bytes
        Size of the answer's record batches, as they are on the wire.
    preferred_read_replica
        Node id that a consumer was redirected to; -1 for none.
    api_version, error_code, fetch_offset
        As in the protocol; the offset is -1 when it was sent before the log began (incremental fetch session).
    session_id
        The fetch session that the answer names; 0 for none.
    """

    node_id: int
    broker_rack: str
    client_id: str
    client_rack: str
    replica_id: int
    topic: str
    partition: int
    record_bytes: int
    preferred_read_replica: int
    error_code: int
    api_version: int
    fetch_offset: int
    session_id: int = 0


class TopicNames:
    """Names of topics by id, from the brokers' data folders (answers name topics by id from Fetch v13 on)."""

    def __init__(self, data_folders: Sequence[Path]) -> None:
        self._data_folders = data_folders
        self._name_of: dict[str, str] = {}

    def name_of(self, topic_id: str) -> str:
        """Return the topic's name; the id itself when no broker has it (any more)."""
        if topic_id not in self._name_of:
            self._scan()
        return self._name_of.setdefault(topic_id, topic_id)

    def _scan(self) -> None:
        for folder in self._data_folders:
            for path in folder.glob("*/partition.metadata"):
                match = PARTITION_FOLDER.fullmatch(path.parent.name)
                try:
                    text = path.read_text(encoding="ascii")
                except FileNotFoundError:  # the topic was deleted meanwhile
                    continue
                found = re.search(r"topic_id: (\S+)", text)
                if match and found:
                    self._name_of[found[1]] = match["topic"]


def read_served_fetches(cluster: LocalKafka, client_id: str | None = None) -> Iterator[ServedFetch]:
    """Yield what the brokers' request logs tell, broker by broker, each in the order of completion.

    Parameters
    ----------
    cluster
        Started with ``request_log=True``.
    client_id
        Only fetches of clients with exactly this ``client.id``; None means all, replica fetchers included.

    Raises
    ------
    LocalClusterError
        The cluster keeps no request log.
    """
    if not cluster.request_log:
        raise LocalClusterError("The cluster keeps no request log: make it with LocalKafka(request_log=True).")
    names = TopicNames([broker.data_folder for broker in cluster.brokers])
    wanted = None if client_id is None else f'"clientId":{json.dumps(client_id)}'.encode()
    for broker in cluster.brokers:
        if broker.request_log_path.exists():
            with broker.request_log_path.open("rb") as lines:
                selected = (line for line in lines if wanted is None or wanted in line)
                yield from parse_served_fetches(
                    selected, node_id=broker.node_id, broker_rack=broker.rack, name_of=names.name_of
                )


def parse_served_fetches(
    lines: Iterable[bytes], *, node_id: int, broker_rack: str, name_of: Callable[[str], str]
) -> Iterator[ServedFetch]:
    """Yield one value per partition of each Fetch answer in a broker's request log.

    Lines of other requests, of the controllers' own log, and a last line that is still being written are passed over.
    An incremental session's request leaves out positions that did not change; they are remembered from before.
    """
    sessions: dict[int, dict[tuple[str, int], int]] = {}
    for line in lines:
        if FETCH_SIGN not in line or CONTROLLER_SIGN in line or not line.endswith(b"\n"):
            continue
        entry = json.loads(line.removeprefix(LINE_START))
        header, request, response = entry["requestHeader"], entry["request"], entry["response"]
        positions = session_positions(sessions, request, response)
        for topic in response["responses"]:
            topic_key = topic_key_of(topic)
            name = topic["topic"] if "topic" in topic else name_of(topic_key)
            for answer in topic["partitions"]:
                yield ServedFetch(
                    node_id=node_id,
                    broker_rack=broker_rack,
                    client_id=header["clientId"],
                    client_rack=request.get("rackId", ""),
                    replica_id=replica_id_of(request),
                    topic=name,
                    partition=answer["partitionIndex"],
                    record_bytes=answer["recordsSizeInBytes"],
                    preferred_read_replica=answer.get("preferredReadReplica", -1),
                    error_code=answer["errorCode"],
                    api_version=header["requestApiVersion"],
                    fetch_offset=positions.get((topic_key, answer["partitionIndex"]), -1),
                    session_id=response.get("sessionId", 0),
                )


def session_positions(
    sessions: dict[int, dict[tuple[str, int], int]], request: dict[str, Any], response: dict[str, Any]
) -> dict[tuple[str, int], int]:
    """Return the fetch offset of every partition of the request's session, and remember it for the next request."""
    session_id = response.get("sessionId", 0)
    is_full = request.get("sessionEpoch", -1) in {0, -1}
    positions = {} if is_full else sessions.get(session_id, {})
    for topic in request["topics"]:
        for asked in topic["partitions"]:
            positions[topic_key_of(topic), asked["partition"]] = asked["fetchOffset"]
    if session_id:
        sessions[session_id] = positions
    return positions


def topic_key_of(topic: dict[str, Any]) -> str:
    """Return the name (up to Fetch v12) or the id of a topic in a request or an answer."""
    return str(topic["topic"] if "topic" in topic else topic["topicId"])


def replica_id_of(request: dict[str, Any]) -> int:
    """Return the asking replica's node id; consumers' is -1 and left out of the log from Fetch v15 on."""
    state = request.get("replicaState", request)
    return int(state.get("replicaId", -1))
