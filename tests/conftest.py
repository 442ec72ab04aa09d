"""Fixtures that start real brokers. Nothing is started or imported for tests that don't ask for them.

The brokers are of the version in the environment variable ``KAFKA_FOLLOWER_KAFKA_VERSION``. Tests that may start some
carry the mark ``brokers``, by the fixtures they use.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.requirements import require

if TYPE_CHECKING:
    from streaming_app.local.kafka import LocalKafka


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark that `pytest_collection_modifyitems` gives."""
    config.addinivalue_line("markers", "brokers: may start brokers (given by itself to tests that use such fixtures)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that may start brokers, before pytest selects by marks."""
    for item in items:
        if isinstance(item, pytest.Function) and "kafka_class_path" in item.fixturenames:
            item.add_marker("brokers")


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """Kafka's jars and a Java to run them; the first time they are downloaded."""
    from streaming_app.local import java, kafka
    from streaming_app.local.errors import LocalClusterError
    from streaming_app.local.kafka_version import kafka_version

    kafka_version()  # a version that is none is a mistake, and no reason to skip
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
    """Make and start clusters of one's own; they end with the test.

    It takes `LocalKafka`'s arguments: ``racks`` (one broker each), ``broker_config`` (any broker setting, replication
    and sessions included), ``selector``, ``request_log`` and others. A cluster costs several seconds: tests that hurt
    brokers share one of their module and call `LocalKafka.heal`.
    """
    from streaming_app.local.kafka import LocalKafka

    with ExitStack() as clusters:
        yield lambda *args, **kwargs: clusters.enter_context(LocalKafka(*args, **kwargs))


@pytest.fixture
def topic() -> Callable[..., str]:
    """Make topic names that no other test uses."""
    return lambda prefix="topic": f"{prefix}-{uuid.uuid4().hex[:10]}"
