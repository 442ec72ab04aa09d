"""librdkafka's mock cluster, driven through ctypes: brokers on real sockets, in this process, that fail on command.

The functions are taken from the librdkafka that the Python client is linked with, so there is nothing to install and
nothing to find. What the mock is, and is not:

* It answers a Fetch with one record batch at most, as it was produced. So a count of requests tells who served.
* The replica that a leader names is set by hand; racks in requests are ignored. A leader that names a replica never
  sends records along, except in Fetch 10 and below, which has no field for the name.
* Every replica of a topic-partition is always in sync, and a follower shows the offsets it is told to show.
* An answer without records is held for the request's whole maximum wait, also when it is an error.
* Its follower answers OFFSET_OUT_OF_RANGE above its high watermark, where Kafka's answers empty.
* It speaks ApiVersions up to 2, ListOffsets up to 7 and OffsetForLeaderEpoch 2 only.

Notes
-----
Counterpart: ``rdkafka_mock.h`` of librdkafka, an interface that it calls experimental.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import cimpl

from connector.model import TopicPartition
from connector.wire.versions import Api

__all__ = ["MockCluster", "MockClusterError", "MockClusterUnavailable", "MockRequest", "load_library"]

_PRODUCER: Final = 0
"""librdkafka's `RD_KAFKA_PRODUCER`; the mock cluster needs a client of its own, of whatever kind."""
_MESSAGE_BYTES: Final = 512

_POINTER, _TEXT, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
_INT16, _SIZE, _ERROR, _NOTHING = ctypes.c_int16, ctypes.c_size_t, ctypes.c_int, None

_SIGNATURES: Final[dict[str, tuple[type | None, tuple[type, ...]]]] = {
    "rd_kafka_conf_new": (_POINTER, ()),
    "rd_kafka_conf_set": (ctypes.c_int, (_POINTER, _TEXT, _TEXT, _TEXT, _SIZE)),
    "rd_kafka_new": (_POINTER, (ctypes.c_int, _POINTER, _TEXT, _SIZE)),
    "rd_kafka_destroy": (_NOTHING, (_POINTER,)),
    "rd_kafka_err2name": (_TEXT, (_ERROR,)),
    "rd_kafka_mock_cluster_new": (_POINTER, (_POINTER, ctypes.c_int)),
    "rd_kafka_mock_cluster_destroy": (_NOTHING, (_POINTER,)),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, (_POINTER,)),
    "rd_kafka_mock_topic_create": (_ERROR, (_POINTER, _TEXT, ctypes.c_int, ctypes.c_int)),
    "rd_kafka_mock_topic_set_error": (_NOTHING, (_POINTER, _TEXT, _ERROR)),
    "rd_kafka_mock_partition_set_leader": (_ERROR, (_POINTER, _TEXT, _INT32, _INT32)),
    "rd_kafka_mock_partition_set_follower": (_ERROR, (_POINTER, _TEXT, _INT32, _INT32)),
    "rd_kafka_mock_partition_set_follower_wmarks": (_ERROR, (_POINTER, _TEXT, _INT32, _INT64, _INT64)),
    "rd_kafka_mock_partition_push_leader_response": (_ERROR, (_POINTER, _TEXT, ctypes.c_int, _INT32, _INT32)),
    "rd_kafka_mock_partition_delete_records": (_ERROR, (_POINTER, _TEXT, _INT32, _INT64)),
    # Pairs of an error and a delay follow; ctypes passes what goes beyond these as variable arguments.
    "rd_kafka_mock_broker_push_request_error_rtts": (_ERROR, (_POINTER, _INT32, _INT16, _SIZE)),
    "rd_kafka_mock_broker_set_down": (_ERROR, (_POINTER, _INT32)),
    "rd_kafka_mock_start_request_tracking": (_NOTHING, (_POINTER,)),
    "rd_kafka_mock_clear_requests": (_NOTHING, (_POINTER,)),
    "rd_kafka_mock_get_requests": (ctypes.POINTER(_POINTER), (_POINTER, ctypes.POINTER(_SIZE))),
    "rd_kafka_mock_request_destroy_array": (_NOTHING, (ctypes.POINTER(_POINTER), _SIZE)),
    "rd_kafka_mock_request_id": (_INT32, (_POINTER,)),
    "rd_kafka_mock_request_api_key": (_INT16, (_POINTER,)),
    "rd_kafka_mock_request_timestamp": (_INT64, (_POINTER,)),
}
"""Result and arguments of every function that is called."""


class MockClusterUnavailable(RuntimeError):
    """This machine's librdkafka can't be reached, or has no such mock cluster."""


class MockClusterError(RuntimeError):
    """The mock cluster refused what it was told."""


class MockRequest(NamedTuple):
    """One request as a broker received it."""

    broker_id: int
    api_key: int
    received_ms: float
    """By a clock that never goes back."""


class MockCluster:
    """Brokers 1 to `broker_count` on loopback ports, from entering the context until leaving it.

    Every request is tracked from the beginning. All methods may be called from any thread.

    Parameters
    ----------
    broker_count : int
        How many brokers.

    Raises
    ------
    MockClusterUnavailable
        On entering, when the library or one of its functions is missing.
    """

    def __init__(self, broker_count: int = 3) -> None:
        self._broker_count = broker_count
        self._library: ctypes.CDLL
        self._client: int | None = None
        self._cluster: int | None = None
        self._addresses: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        self._library = load_library(cimpl.__file__)
        self._client = self._new_client()
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, self._broker_count)
        if self._cluster is None:
            self._library.rd_kafka_destroy(self._client)
            raise MockClusterUnavailable(f"librdkafka starts no mock cluster of {self._broker_count} brokers")
        for broker_id, server in enumerate(self.bootstrap_servers.split(","), start=1):
            host, _, port = server.rpartition(":")
            self._addresses[broker_id] = host, int(port)
        self._call("start_request_tracking")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)
        self._cluster = self._client = None

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, `host:port,host:port`."""
        servers: bytes = self._call("cluster_bootstraps")
        return servers.decode()

    def create_topic(self, topic: str, leader_ids: Sequence[int]) -> None:
        """Create a topic with a partition per leader, replicated to every broker."""
        self._command("topic_create", topic.encode(), len(leader_ids), self._broker_count)
        for partition, leader_id in enumerate(leader_ids):
            self.set_leader(TopicPartition(topic, partition), leader_id)

    def set_leader(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Make a broker the leader; the leader epoch grows by one, also when it was the leader before."""
        self._command("partition_set_leader", *_encoded(topic_partition), broker_id)

    def set_follower(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Let the leader name this broker as the replica to read; -1: nobody. No other follower answers fetches."""
        self._command("partition_set_follower", *_encoded(topic_partition), broker_id)

    def set_follower_last_offset(self, topic_partition: TopicPartition, last_offset: int) -> None:
        """Let the follower serve offsets up to this one; -1: all that the leader has."""
        self._command("partition_set_follower_wmarks", *_encoded(topic_partition), -1, last_offset)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        """Move the log start offset, at the leader and at the follower."""
        self._command("partition_delete_records", *_encoded(topic_partition), before_offset)

    def push_leader_answer(self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> None:
        """Let one more answer name this leader and epoch, whoever leads; pushed ones are used up in order.

        Answers that name a leader are Metadata, and a Fetch's NOT_LEADER_OR_FOLLOWER (KIP-951).
        """
        self._command("partition_push_leader_response", *_encoded(topic_partition), leader_id, leader_epoch)

    def set_topic_error(self, topic: str, error_code: int) -> None:
        """Let Metadata answer this error for the topic until it is set to 0."""
        self._call("topic_set_error", topic.encode(), error_code)
        self._wake()

    def push_errors(self, broker_id: int, api: Api, error_codes: Sequence[int], delay_ms: int = 0) -> None:
        """Let a broker answer its next requests of this API with these codes (0: as usual), each after the delay."""
        pairs = [ctypes.c_int(each) for code in error_codes for each in (code, delay_ms)]
        self._command("broker_push_request_error_rtts", broker_id, int(api), len(error_codes), *pairs)

    def set_down(self, broker_id: int) -> None:
        """Close a broker's connections and port, and leave it out of Metadata; leaders stay who they are."""
        del self._addresses[broker_id]
        self._command("broker_set_down", broker_id)

    def requests(self) -> tuple[MockRequest, ...]:
        """Return what the brokers received since the beginning, or since `clear_requests`, in that order."""
        count = _SIZE()
        found = self._call("get_requests", ctypes.byref(count))
        try:
            return tuple(
                MockRequest(
                    self._library.rd_kafka_mock_request_id(found[index]),
                    self._library.rd_kafka_mock_request_api_key(found[index]),
                    self._library.rd_kafka_mock_request_timestamp(found[index]) / 1000,
                )
                for index in range(count.value)
            )
        finally:
            self._library.rd_kafka_mock_request_destroy_array(found, count.value)

    def clear_requests(self) -> None:
        """Forget the requests so far."""
        self._call("clear_requests")

    def _new_client(self) -> int:
        """Return a silent client that connects to nothing."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        is_refused = self._library.rd_kafka_conf_set(configuration, b"log_level", b"0", message, _MESSAGE_BYTES)
        client: int | None = (
            None if is_refused else self._library.rd_kafka_new(_PRODUCER, configuration, message, _MESSAGE_BYTES)
        )
        if client is None:
            raise MockClusterUnavailable(f"librdkafka makes no client: {message.value.decode()}")
        return client

    def _command(self, name: str, *arguments: object) -> None:
        """Tell the mock something that it may refuse."""
        code: int = self._call(name, *arguments)
        if code != 0:
            problem: bytes = self._library.rd_kafka_err2name(code)
            raise MockClusterError(f"{name}{arguments}: {problem.decode()}")
        self._wake()

    def _call(self, name: str, *arguments: object) -> Any:
        # librdkafka would end this process if it were given no cluster.
        if self._cluster is None:
            raise MockClusterError(f"{name}: the mock cluster is not running, use it as a context manager")
        return getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)

    def _wake(self) -> None:
        """Give the mock's thread something to do after a command.

        It may miss a command that comes while it finishes the one before, and then sleeps for a second.
        """
        socket.create_connection(next(iter(self._addresses.values()))).close()


def _encoded(topic_partition: TopicPartition) -> tuple[bytes, int]:
    return topic_partition.topic.encode(), topic_partition.partition


def load_library(path: str) -> ctypes.CDLL:
    """Return librdkafka from the library at this path: itself, or one that brings it along as a dependency.

    Raises
    ------
    MockClusterUnavailable
        When the library can't be loaded, or lacks one of the functions.
    """
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise MockClusterUnavailable(f"{path} can't be loaded: {error}") from error
    for name, (result_type, argument_types) in _SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise MockClusterUnavailable(
                f"the librdkafka behind {path} has no {name}: install requirements.lock's confluent-kafka as a wheel"
            ) from error
        function.restype = result_type
        function.argtypes = argument_types
    return library
