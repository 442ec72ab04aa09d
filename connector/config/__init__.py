"""Options declared once as data, and the frozen configuration they become. Pure."""

from __future__ import annotations

from connector.config.options import OPTIONS, option_table
from connector.config.parse import parse_options
from connector.config.settings import (
    Assign,
    ClientConfig,
    ConnectorConfig,
    OffsetBound,
    PartitionOffsets,
    ReplicaSelection,
    SessionUse,
    Subscribe,
    Subscription,
    WholeLog,
)

__all__ = [
    "OPTIONS",
    "Assign",
    "ClientConfig",
    "ConnectorConfig",
    "OffsetBound",
    "PartitionOffsets",
    "ReplicaSelection",
    "SessionUse",
    "Subscribe",
    "Subscription",
    "WholeLog",
    "option_table",
    "parse_options",
]
