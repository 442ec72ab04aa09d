"""Captures record batches as a real broker sends them, with the rows that librdkafka's consumer makes of them.

    .venv/bin/python -m tests.golden.capture tests/golden

It starts a broker of its own (`streaming_app.local`). Transactions are written by librdkafka, markers, log append time
and everything compacted by the broker. The answer is taken from the wire and read with kio, so nothing of the connector
takes part. Never run by tests; every run gives other timestamps.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v11.response import FetchResponse, PartitionData
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from streaming_app.local.kafka import LocalKafka

FETCH_KEY, FETCH_VERSION, READ_COMMITTED = 1, 11, 1
TIMEOUT_S = 60.0
TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}
QUIET_LOOKS = 4
"""So often in a row, a second apart, the cleaner must have changed nothing."""
MOST_ROLLS = 20
TRANSACTIONS_END = 16
"""Records and markers of the scenario; markers are written after the client was told that its transaction ended."""


class Capture:
    """A broker, and what was captured from it so far."""

    def __init__(self, cluster: LocalKafka, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.cases: list[str] = []

    def create_topic(self, name: str, **config: str) -> None:
        """Create a topic of one partition; in its configuration's names an underscore is a dot."""
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        self.cluster.create_topic(name, replication_factor=1, config=dotted)

    def producer(self, **options: object) -> Producer:
        return Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5, **options})

    def transactional(self, name: str) -> Producer:
        producer = self.producer(**{"transactional.id": name})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def fetch(self, topic: str, fetch_offset: int) -> PartitionData:
        """Return the broker's answer to one Fetch under read_committed."""
        partition = FetchPartition(partition=i32(0), fetch_offset=i64(fetch_offset), partition_max_bytes=i32(1 << 20))
        request = FetchRequest(
            max_wait=i32Timedelta.parse(timedelta(milliseconds=100)),
            min_bytes=i32(1),
            isolation_level=i8(READ_COMMITTED),
            topics=(FetchTopic(topic=TopicName(topic), partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        sent = BytesIO()
        header = RequestHeader(
            request_api_key=i16(FETCH_KEY),
            request_api_version=i16(FETCH_VERSION),
            correlation_id=i32(1),
            client_id="golden",
        )
        entity_writer(RequestHeader)(sent, header)
        entity_writer(FetchRequest)(sent, request)
        broker = self.cluster.brokers[0]
        with (
            socket.create_connection((broker.host, broker.port), TIMEOUT_S) as connection,
            connection.makefile("rb") as answers,
        ):
            connection.sendall(len(sent.getvalue()).to_bytes(4, "big") + sent.getvalue())
            payload = answers.read(int.from_bytes(answers.read(4), "big"))
        _, at = entity_reader(ResponseHeader)(payload, 0)
        response, _ = entity_reader(FetchResponse)(payload, at)
        [answer] = response.responses[0].partitions
        if answer.error_code:
            raise SystemExit(f"{topic}: the broker answered {answer.error_code}")
        return answer

    def rows(self, topic: str, fetch_offset: int, isolation_level: str) -> Iterator[Any]:
        """Yield what librdkafka's consumer reads up to the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": "golden",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation_level,
            }
        )
        consumer.assign([ClientTopicPartition(topic, 0, fetch_offset)])
        try:
            while True:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    raise SystemExit(f"{topic}: nothing to read for {TIMEOUT_S:g} s")
                problem = message.error()
                if problem is None:
                    yield message
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise SystemExit(f"{topic}: {problem}")
        finally:
            consumer.close()

    def take(self, name: str, topic: str, fetch_offset: int = 0) -> None:
        """Keep the answer to a fetch, and the rows that it holds: a broker answers from one segment of the log."""
        answer = self.fetch(topic, fetch_offset)
        records = bytes(answer.records or b"")
        end_offset = next_offset(records)
        everything = [each for each in self.rows(topic, fetch_offset, "read_uncommitted") if each.offset() < end_offset]
        committed = [each.offset() for each in self.rows(topic, fetch_offset, "read_committed")]
        committed = [each for each in committed if each < end_offset]
        (self.folder / f"{name}.bin").write_bytes(records)
        aborted = answer.aborted_transactions
        listed = None if aborted is None else [[each.producer_id, each.first_offset] for each in aborted]
        self.cases.append(
            f' {{"name": "{name}", "fetch_offset": {fetch_offset}, "aborted_transactions": {json.dumps(listed)},\n'
            f'  "next_offset": {end_offset}, "last_leader_epoch": {everything[-1].leader_epoch()}, '
            f'"committed_offsets": {committed},\n  "rows": [\n   ' + ",\n   ".join(map(row, everything)) + "]}"
        )


def next_offset(records: bytes) -> int:
    """Return the offset behind the last batch, from base offset, length and last offset delta."""
    found, at = -1, 0
    while at < len(records):
        found = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += 12 + int.from_bytes(records[at + 8 : at + 12], "big")
    return found


def row(message: Any) -> str:
    """Return a row as ``expected.json`` has them."""

    def hexadecimal(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    timestamp_type, timestamp_ms = message.timestamp()
    headers = [[key, hexadecimal(value)] for key, value in message.headers() or ()]
    cells = (message.offset(), timestamp_ms, TIMESTAMP_TYPES[timestamp_type])
    return json.dumps([*cells, hexadecimal(message.key()), hexadecimal(message.value()), headers])


def write(producer: Producer, topic: str, *keys: str) -> None:
    """Write records in one batch, and wait until the broker has them."""
    for key in keys:
        producer.produce(topic, key=key, value=f"value of {key}", partition=0)
    if producer.flush(TIMEOUT_S):
        raise SystemExit(f"{topic}: not all records were taken")


def codecs(capture: Capture) -> None:
    """Another writer's batches: what librdkafka compresses goes through the broker as it is."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = f"librdkafka-{codec}"
        capture.create_topic(topic)
        producer = capture.producer(**{"compression.codec": codec})
        producer.produce(topic, key="with headers", value="v" * 200, partition=0, headers=[("a", b"1"), ("b", None)])
        write(producer, topic, *(f"key {i}" for i in range(4)))
        capture.take(topic, topic)


def log_append_time(capture: Capture) -> None:
    """The broker sets the timestamp in the header, and leaves the records as they are."""
    capture.create_topic("log-append-time", message_timestamp_type="LogAppendTime")
    write(capture.producer(**{"compression.codec": "lz4"}), "log-append-time", "a" * 40, "b" * 40, "c" * 40)
    capture.take("broker-log-append-time", "log-append-time")


def transactions(capture: Capture) -> None:
    """Two producers at the same time, and a third without transactions."""
    topic = "transactions"
    capture.create_topic(topic)
    plain, first, second = capture.producer(), capture.transactional("first"), capture.transactional("second")
    first.begin_transaction()
    write(first, topic, "aborted 1", "aborted 2", "aborted 3")
    second.begin_transaction()
    write(second, topic, "committed 1", "committed 2")
    write(plain, topic, "plain 1", "plain 2")
    write(first, topic, "aborted 4")
    first.abort_transaction(TIMEOUT_S)
    second.commit_transaction(TIMEOUT_S)
    first.begin_transaction()
    write(first, topic, "committed 3", "committed 4")
    second.begin_transaction()
    write(second, topic, "aborted 5")
    first.commit_transaction(TIMEOUT_S)
    second.abort_transaction(TIMEOUT_S)
    write(plain, topic, "plain 3")
    capture.cluster.wait_until(
        lambda: capture.fetch(topic, 0).last_stable_offset == TRANSACTIONS_END, "all markers are written", TIMEOUT_S
    )
    capture.take("broker-transactions", topic)
    capture.take("broker-transactions-from-within-an-aborted-batch", topic, 1)
    capture.take("broker-transactions-from-a-later-batch-of-an-aborted-one", topic, 7)


def compaction(capture: Capture) -> None:
    """Overwritten keys, tombstones and an aborted transaction, after the cleaner has been there."""
    topic = "compacted"
    capture.create_topic(
        topic,
        cleanup_policy="compact",
        segment_ms="50",
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms="100",
    )
    plain, aborting = capture.producer(), capture.transactional("aborting")
    write(plain, topic, "a", "b", "c", "d")
    write(plain, topic, "b", "e")
    plain.produce(topic, key="d", value=None, partition=0)
    write(plain, topic, "e", "f", "f")
    aborting.begin_transaction()
    write(aborting, topic, "c", "g")
    aborting.abort_transaction(TIMEOUT_S)
    aborting.begin_transaction()
    write(aborting, topic, "g", "h")
    aborting.commit_transaction(TIMEOUT_S)
    for number in range(MOST_ROLLS):
        write(plain, topic, f"rolls the segment {number % 2}")
        sizes = set()
        for _ in range(QUIET_LOOKS):
            time.sleep(1)
            sizes.add(len(capture.fetch(topic, 0).records or b""))
        keys = [each.key() for each in capture.rows(topic, 0, "read_uncommitted")]
        if len(sizes) == 1 and keys.count(b"b") == 1:
            break
    else:
        raise SystemExit(f"{topic}: the cleaner did not get there")
    capture.take("broker-compacted", topic)


def main() -> None:
    """Capture everything."""
    folder = Path(sys.argv[1])
    with LocalKafka(("az-a",), broker_config={"log.cleaner.backoff.ms": "200"}) as cluster:
        capture = Capture(cluster, folder)
        for scenario in (codecs, log_append_time, transactions, compaction):
            scenario(capture)
    (folder / "captured.json").write_text("[\n" + ",\n".join(capture.cases) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
