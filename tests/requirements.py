"""What a test needs from the machine: skip with the reason where it lacks, or fail where everything must run."""

import os

import pytest


def require(condition: object, reason: str) -> None:
    """Skip the test with `reason` unless `condition` holds; with REQUIRE_ALL=1 in the environment fail instead."""
    if condition:
        return
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"REQUIRE_ALL=1 and {reason}")
    pytest.skip(reason)
