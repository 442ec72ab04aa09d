"""Decide which rack an executor names in its Fetch requests (KIP-392, ``client.rack``).

Every executor decides for itself, from what it was given, so that executors of one query can differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RACK_VARIABLE", "RackSource", "ResolvedRack", "resolve_rack"]

RACK_VARIABLE: Final = "KAFKA_CLIENT_RACK"
"""The executor's environment variable; Spark sets it with ``spark.executorEnv.KAFKA_CLIENT_RACK``."""


class RackSource(StrEnum):
    """Where the rack came from; the value of the label `source` of `kafka_follower_rack_info`."""

    OPTION = "option"
    ENVIRONMENT = "environment"
    CLIENT_RACK = "client_rack"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ResolvedRack:
    """The rack of this executor.

    Attributes
    ----------
    rack : str or None
        None when nothing names one: reads then go to the leaders.
    source : RackSource
    warning : str or None
        One line for the log when `kafka.client.rack` was given and is not what is used.
    """

    rack: str | None
    source: RackSource
    warning: str | None = None


_SAID_AS: Final = {
    RackSource.OPTION: "option rack",
    RackSource.ENVIRONMENT: f"environment variable {RACK_VARIABLE}",
}


def resolve_rack(option: str | None, client_rack: str | None, environ: Mapping[str, str]) -> ResolvedRack:
    """Return the rack, by the first of these that is set.

    Parameters
    ----------
    option : str or None
        Option `rack`: one rack for the whole query.
    client_rack : str or None
        Option `kafka.client.rack`, as a job brings it along from Spark's own `kafka` source. It comes last because
        the driver fixes it for all executors.
    environ : Mapping
        The executor's environment, of which `RACK_VARIABLE` is read.

    Notes
    -----
    Surrounding blanks are dropped, and what is then empty counts as not set: Kafka takes an empty ``client.rack``
    for "no rack" too (`ConsumerConfig.DEFAULT_CLIENT_RACK`).
    """
    from_client = _stripped(client_rack)
    for source, given in (
        (RackSource.OPTION, option),
        (RackSource.ENVIRONMENT, environ.get(RACK_VARIABLE)),
    ):
        rack = _stripped(given)
        if rack is not None:
            return ResolvedRack(rack, source, _difference(rack, source, from_client))
    if from_client is not None:
        return ResolvedRack(from_client, RackSource.CLIENT_RACK)
    return ResolvedRack(None, RackSource.NONE)


def _stripped(given: str | None) -> str | None:
    return (given.strip() or None) if given is not None else None


def _difference(rack: str, source: RackSource, client_rack: str | None) -> str | None:
    if client_rack is None or client_rack == rack:
        return None
    return (
        f"kafka.client.rack={client_rack} is not used: this executor's rack is {rack} ({_SAID_AS[source]}). "
        "Remove kafka.client.rack from the options to silence this."
    )
