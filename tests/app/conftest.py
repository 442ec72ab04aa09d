"""Jobs of this folder run in processes of their own; all they need of the machine is a Java."""

from __future__ import annotations

import pytest

from tests.requirements import require


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Skip where there is no Java to run Spark."""
    from streaming_app.local.errors import LocalClusterError
    from streaming_app.local.java import find_java

    try:
        find_java()
    except LocalClusterError as error:
        require(False, str(error))
