"""Fixtures that start real brokers. Nothing is started or imported for tests that don't ask for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.requirements import require

if TYPE_CHECKING:
    from streaming_app.local.kafka import LocalKafka


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """Kafka's jars and a Java to run them; the first time they are downloaded."""
    from streaming_app.local import java, kafka
    from streaming_app.local.errors import LocalClusterError

    try:
        java.find_java()
        return kafka.kafka_class_path()
    except LocalClusterError as error:
        require(False, str(error))
        raise


@pytest.fixture(scope="session")
def kafka_cluster(kafka_class_path: str) -> Iterator[LocalKafka]:
    """Three brokers in az-a, az-b and az-c with request logs, shared by all tests: don't hurt them."""
    from streaming_app.local.kafka import LocalKafka

    with LocalKafka(request_log=True) as cluster:
        yield cluster


@pytest.fixture
def private_kafka_cluster(kafka_class_path: str) -> Iterator[Callable[..., LocalKafka]]:
    """Make and start clusters of one's own, with `LocalKafka`'s arguments; they end with the test."""
    from streaming_app.local.kafka import LocalKafka

    with ExitStack() as clusters:
        yield lambda *args, **kwargs: clusters.enter_context(LocalKafka(*args, **kwargs))


@pytest.fixture
def topic() -> Callable[..., str]:
    """Make topic names that no other test uses."""
    return lambda prefix="topic": f"{prefix}-{uuid.uuid4().hex[:10]}"
