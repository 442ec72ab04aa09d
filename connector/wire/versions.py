"""Which APIs and versions we speak, and which version a connection uses.

Notes
-----
Spec: KIP-35 (ApiVersions), KIP-511. Counterpart: ``NodeApiVersions.latestUsableVersion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from connector.errors import LocalViolation, UnsupportedApi

__all__ = ["Api", "SUPPORTED", "negotiate", "require_supported"]


class Api(IntEnum):
    """API keys of the Kafka protocol, by Kafka's names."""

    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_LOG_DIRS = 35


SUPPORTED: Final[Mapping[Api, tuple[int, int]]] = MappingProxyType(
    {
        Api.FETCH: (4, 16),  # 17 and 18 add what only followers tell
        Api.LIST_OFFSETS: (2, 10),  # 1 can't carry an isolation level; every broker with Fetch 4 has 2
        Api.METADATA: (4, 12),  # 4 is the first that can forbid the creation of topics
        Api.API_VERSIONS: (0, 3),
        Api.OFFSET_FOR_LEADER_EPOCH: (3, 4),  # 2 wants rights on the whole cluster, 3 on the topic
        Api.DESCRIBE_LOG_DIRS: (1, 4),  # 5 adds which log dirs take no new partitions
    }
)
"""Lowest and highest version of each API that this room encodes and decodes, both inclusive."""


def negotiate(api: Api, broker_ranges: Mapping[int, tuple[int, int]], cap: int | None = None) -> int:
    """Return the highest version that both sides speak.

    Parameters
    ----------
    api : Api
        The API to speak.
    broker_ranges : Mapping[int, tuple[int, int]]
        What the broker offers: lowest and highest version by API key (`ApiVersionsReply.ranges`).
    cap : int, optional
        Never go above this version, even where both sides could. Fetch 10 is a request for the leader alone:
        a follower refuses it and a leader never redirects it (KIP-392).

    Raises
    ------
    UnsupportedApi
        The broker does not offer the API, or no version in common. Both ranges are in the text.
    LocalViolation
        `cap` is below everything we speak.
    """
    lowest, highest = SUPPORTED[api]
    if cap is not None:
        if cap < lowest:
            raise LocalViolation(
                f"{api.name} can't be capped at version {cap}: versions {lowest} to {highest} are spoken"
            )
        highest = min(highest, cap)
    ours = f"this client speaks {lowest} to {highest}" + ("" if cap is None else f" (capped at {cap})")
    if api not in broker_ranges:
        raise UnsupportedApi(f"the broker does not offer {api.name}, {ours}: is this a Kafka broker's client listener?")
    broker_lowest, broker_highest = broker_ranges[api]
    version = min(highest, broker_highest)
    if version < max(lowest, broker_lowest):
        raise UnsupportedApi(
            f"no common version of {api.name}: the broker offers {broker_lowest} to {broker_highest}, {ours}"
        )
    return version


def require_supported(api: Api, version: int) -> None:
    """Raise `LocalViolation` unless `version` of `api` is in `SUPPORTED`; every codec calls it first."""
    lowest, highest = SUPPORTED[api]
    if not lowest <= version <= highest:
        raise LocalViolation(f"{api.name} version {version} was asked for; versions {lowest} to {highest} are spoken")
