"""Run the tests that need brokers on one Kafka version after the other: ``python -m tests.kafka_matrix [VERSION ...]``.

Every version runs, also after one that failed. The last lines tell how each went, and the exit code is 0 only when all
passed; a skipped test counts as failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming_app.local.kafka_version import DEFAULT_VERSION, VERSION_VARIABLE, kafka_version

PROJECT: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ("3.3.2", "3.9.2", DEFAULT_VERSION)
"""The oldest that is free of the known faults of reading from followers, the last that knows ZooKeeper, and ours."""
PYTEST: Final = ("-m", "pytest", "tests/integration", "-m", "brokers and not spark")
FETCH_JARS: Final = ("-m", "streaming_app.local.artifacts")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the tests went on one version."""

    version: str
    has_passed: bool
    last_words: str
    seconds: float

    def __str__(self) -> str:
        """Return one line."""
        verdict = "passed" if self.has_passed else "FAILED"
        return f"Kafka {self.version:8}{verdict}  {self.seconds:4.0f} s  {self.last_words}"


def run_tests(version: str) -> Outcome:
    """Run the tests on one version, with their output as they go."""
    environment = {**os.environ, VERSION_VARIABLE: version, "REQUIRE_ALL": "1"}
    # Ahead of the tests, so that the download is no test's time; without a network they say what they lack.
    subprocess.run([sys.executable, *FETCH_JARS], cwd=PROJECT, env=environment, check=False)
    start_s = time.monotonic()
    last_words = "no output"
    with subprocess.Popen(
        [sys.executable, *PYTEST], cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last_words = line.strip("= \n") or last_words
    return Outcome(version, tests.returncode == 0, last_words, time.monotonic() - start_s)


def main(versions: Sequence[str]) -> int:
    """Run the tests on each version; return how many failed."""
    wanted = [kafka_version({VERSION_VARIABLE: version}) for version in versions or VERSIONS]
    outcomes = [run_tests(version) for version in wanted]
    sys.stdout.write("\n" + "".join(f"{outcome}\n" for outcome in outcomes))
    return sum(not outcome.has_passed for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
