"""All that the engine knows at one moment. Changed by `engine` alone; `requests` only reads it."""

from __future__ import annotations

from connector.fetch.actions import EngineSettings, SendFetch, SendListOffsets
from connector.fetch.progress import RangeProgress
from connector.fetch.replica import ReplicaChoices
from connector.fetch.view import ViewKeeper
from connector.model import TopicPartition

__all__ = ["EngineState"]


class EngineState:
    """What was learned of cluster and replicas, the ranges of the read that is on, and what is under way.

    Attributes
    ----------
    ranges : dict
        Unfinished ranges, in the order in which they are asked for.
    bytes_per_offset : dict
        Record bytes per offset as seen in the last answer of a topic-partition.
    busy_nodes : dict
        The one request under way at a node.
    node_retry_at_ms : dict
        Nodes that are not asked before an instant: they failed, or they throttle us.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.choices = ReplicaChoices(settings.metadata_max_age_ms)
        self.view = ViewKeeper(settings.metadata_max_age_ms, settings.error_backoff)
        self.ranges: dict[TopicPartition, RangeProgress] = {}
        self.bytes_per_offset: dict[TopicPartition, float] = {}
        self.busy_nodes: dict[int, SendFetch | SendListOffsets] = {}
        self.node_retry_at_ms: dict[int, int] = {}
