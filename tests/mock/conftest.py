"""A mock cluster for each test; without one in this machine's librdkafka the tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module

import pytest

from tests.mock.mock_cluster import MockCluster, MockClusterUnavailable
from tests.requirements import require


@pytest.fixture(scope="session", autouse=True)
def message_schemas() -> None:
    """Import ahead of the tests what the first message imports: under pytest that can take longer than a read may."""
    import_module("kio.serial")


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Brokers 1 to 4."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(MockCluster(broker_count=4))
        except MockClusterUnavailable as error:
            require(False, str(error))
            raise
        yield running
