"""All that the engine knows at one moment. Changed by `engine` and `commit` alone; `requests` only reads it."""

from __future__ import annotations

from collections.abc import Callable

from connector.fetch.actions import Action, EngineSettings, SendFetch
from connector.fetch.local_logs import LocalLogs
from connector.fetch.progress import RangeProgress, exponential_pause_ms
from connector.fetch.replica import ReplicaChoices
from connector.fetch.session import FINAL_EPOCH, SessionState, session_after_failure
from connector.fetch.tails import Tails
from connector.fetch.view import ViewKeeper
from connector.model import TopicPartition

__all__ = ["EngineState", "NodeState"]


class NodeState:
    """What is known of one broker.

    Attributes
    ----------
    under_way : Action or None
        The one request under way.
    retry_at_ms : int
        Not asked before this instant: it failed, or it throttles us.
    failure_count : int
        Requests in a row that got no answer.
    session : SessionState
        What the next Fetch that uses the session carries.
    session_refused_until_ms : int
        No session is asked for before this instant.
    session_reset_count : int
        Session resets in a row.
    read_fetch_count : int
        Fetch requests of the read that is on.
    """

    def __init__(self) -> None:
        self.under_way: Action | None = None
        self.retry_at_ms = 0
        self.failure_count = 0
        self.session = SessionState()
        self.session_refused_until_ms = 0
        self.session_reset_count = 0
        self.read_fetch_count = 0

    def on_abandoned(self) -> None:
        """Take note that nobody waits for what is under way; the broker may have taken it all the same."""
        if isinstance(self.under_way, SendFetch) and self.under_way.plan.session_epoch != FINAL_EPOCH:
            self.session = session_after_failure(self.session)
        self.under_way = None
        self.read_fetch_count = 0

    def is_failing(self, now_ms: int) -> bool:
        """Tell whether the node did not answer a moment ago."""
        return self.failure_count > 0 and now_ms < self.retry_at_ms


class EngineState:
    """What was learned of cluster and replicas, the ranges of the read that is on, and what is under way.

    Attributes
    ----------
    ranges : dict
        Unfinished ranges, in the order in which they are asked for.
    bytes_per_offset : dict
        Record bytes per offset as seen in the last answer of a topic-partition.
    nodes : dict
        What is known of each broker that was asked for something.
    topic_trouble_since_ms : dict
        Topics that metadata shows as missing, or under another id, and since when.
    """

    def __init__(self, settings: EngineSettings, jitter: Callable[[], float], unix_ms_at_zero: int) -> None:
        self.settings = settings
        self.jitter = jitter
        self.choices = ReplicaChoices(
            settings.metadata_max_age_ms,
            settings.leader_only_ms,
            settings.useless_redirect_limit,
            settings.behind_limit,
        )
        self.view = ViewKeeper(settings.metadata_max_age_ms, settings.error_backoff, jitter)
        self.local_logs = LocalLogs(settings, unix_ms_at_zero)
        self.tails = Tails(settings.tail_bytes)
        self.ranges: dict[TopicPartition, RangeProgress] = {}
        self.bytes_per_offset: dict[TopicPartition, float] = {}
        self.nodes: dict[int, NodeState] = {}
        self.topic_trouble_since_ms: dict[str, int] = {}

    def on_node_met(self, node_id: int) -> NodeState:
        """Return what is known of a node, which from here on is something."""
        return self.nodes.setdefault(node_id, NodeState())

    def error_pause_ms(self, failure_count: int) -> int:
        """Return the pause after so many failures in a row."""
        return exponential_pause_ms(self.settings.error_backoff, failure_count, self.jitter)
