"""A process of its own that produces order events: ``python -m streaming_app.local.produce_orders``.

Whatever it reports is what brokers acknowledged (``acks=all``, idempotent), never what was handed to the client. The
report is a small JSON file, replaced as a whole a few times a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming_app.local.order_events import order_events

__all__ = ["ProducedOrders", "main", "read_report"]

REPORT_INTERVAL_S: Final = 0.25
FLUSH_TIMEOUT_S: Final = 60.0
POLL_EVERY: Final = 500
CLIENT: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 262_144,
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 200_000,
    "delivery.timeout.ms": 60_000,
}


@dataclass(frozen=True, slots=True)
class ProducedOrders:
    """How far the producer is; it ended well when `is_done` and `failed_count` is 0."""

    acknowledged_count: int = 0
    failed_count: int = 0
    first_failure: str = ""
    is_done: bool = False


def read_report(path: Path) -> ProducedOrders:
    """Return the latest report; the empty one before the first."""
    try:
        return ProducedOrders(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ProducedOrders()


class OrderProducer:
    """Produces orders, counts delivery reports and writes the report."""

    def __init__(self, bootstrap_servers: str, topic: str, report_path: Path) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **CLIENT})
        self._topic = topic
        self._report_path = report_path
        self._acknowledged_count = 0
        self._failed_count = 0
        self._first_failure = ""

    def produce(self, event_count: int, seed: int) -> ProducedOrders:
        """Produce every order and block until each is acknowledged or has failed."""
        report_at_s = time.monotonic()
        for number, (key, value) in enumerate(order_events(event_count, seed), start=1):
            self._send(key, value)
            if number % POLL_EVERY == 0:
                self._producer.poll(0)
                if time.monotonic() >= report_at_s:
                    self._write_report(is_done=False)
                    report_at_s = time.monotonic() + REPORT_INTERVAL_S
        unsent_count = self._producer.flush(FLUSH_TIMEOUT_S)
        if unsent_count:
            self._failed_count += unsent_count
            self._first_failure = self._first_failure or "brokers did not acknowledge in time"
        return self._write_report(is_done=True)

    def _send(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - a callback's form
        if error is None:
            self._acknowledged_count += 1
            return
        self._failed_count += 1
        self._first_failure = self._first_failure or error.str()

    def _write_report(self, *, is_done: bool) -> ProducedOrders:
        report = ProducedOrders(self._acknowledged_count, self._failed_count, self._first_failure, is_done)
        unfinished = self._report_path.with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(report)), encoding="utf-8")
        unfinished.replace(self._report_path)
        return report


def main(argv: Sequence[str] | None = None) -> int:
    """Produce, and return 0 when every order was acknowledged."""
    parser = argparse.ArgumentParser(description="Produce order events.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, required=True, help="JSON file to keep up to date")
    arguments = parser.parse_args(argv)
    try:
        producer = OrderProducer(arguments.bootstrap_servers, arguments.topic, arguments.report)
        report = producer.produce(arguments.events, arguments.seed)
    except KafkaException as error:
        sys.stderr.write(f"Orders can't be produced: {error}\n")
        return 1
    if report.failed_count:
        sys.stderr.write(f"{report.failed_count:,} orders were not acknowledged: {report.first_failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
