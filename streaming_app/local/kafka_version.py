"""Which Apache Kafka the local brokers run, and the Maven artifacts that it is made of.

Environment variable ``KAFKA_FOLLOWER_KAFKA_VERSION``: the version, `DEFAULT_VERSION` unless it is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from streaming_app.local.errors import LocalClusterError

__all__ = ["DEFAULT_VERSION", "VERSION_VARIABLE", "kafka_artifacts", "kafka_version", "release_of"]

VERSION_VARIABLE: Final = "KAFKA_FOLLOWER_KAFKA_VERSION"
DEFAULT_VERSION: Final = "4.4.0"
OLDEST_RELEASE: Final = (3, 3, 0)
"""The first whose brokers are meant to run without ZooKeeper (KIP-833)."""
FIRST_RELEASE_WITH_LOG4J_2: Final = (4, 0, 0)
"""Spec: KIP-653. Brokers before it call log4j 1 by its own classes, besides SLF4J."""
VERSION_FORM: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
LOG4J_VERSION: Final = "2.25.5"
"""The one that `DEFAULT_VERSION` brings as log4j-core; the bindings must be the same."""


def kafka_version(environ: Mapping[str, str] | None = None) -> str:
    """Return the version to run; None reads this process's own environment.

    Raises
    ------
    LocalClusterError
        The variable holds no version, or one whose brokers need ZooKeeper.
    """
    wanted = (os.environ if environ is None else environ).get(VERSION_VARIABLE) or DEFAULT_VERSION
    if not VERSION_FORM.fullmatch(wanted) or release_of(wanted) < OLDEST_RELEASE:
        oldest = ".".join(map(str, OLDEST_RELEASE))
        raise LocalClusterError(
            f"{VERSION_VARIABLE}={wanted} is no Apache Kafka that can be run here: "
            f"set it to a version from {oldest} on, such as {DEFAULT_VERSION}, or unset it."
        )
    return wanted


def release_of(version: str) -> tuple[int, ...]:
    """Return a version's numbers, for comparison."""
    return tuple(map(int, version.split(".")))


def kafka_artifacts(version: str) -> Sequence[str]:
    """Return the coordinates of a broker and of what makes it log, the same way in every version (log4j 2)."""
    log4j = [f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}"]
    if release_of(version) < FIRST_RELEASE_WITH_LOG4J_2:
        log4j.append(f"org.apache.logging.log4j:log4j-1.2-api:{LOG4J_VERSION}")
    return (f"org.apache.kafka:kafka_2.13:{version}", *log4j)
