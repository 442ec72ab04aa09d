"""The model's switches. Defaults are Apache Kafka 4's; other values are older brokers, or the papers as written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.model.selector import Selector

__all__ = ["ModelSettings", "TopicSettings"]


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What kind of cluster is modelled.

    Attributes
    ----------
    racks : tuple of str
        One broker per entry: broker ``i + 1`` stands in rack ``i``. More brokers than racks: name a rack twice.
    selector : str
        ``replica.selector.class``: rack aware, leader (none configured), or `custom_selector`.
    answers_offset_not_available : bool
        OFFSET_NOT_AVAILABLE for offsets that exist but can't be read here yet: KIP-392 cases 1 and 2, and Redpanda.
        Apache answers success without records, and OFFSET_OUT_OF_RANGE above the follower's log.
    fills_offsets_on_error : bool
        OFFSET_OUT_OF_RANGE carries high watermark and log start (KIP-392 case 3). Apache answers -1.
    redirects_to_lagging : bool
        Followers outside the ISR are candidates too (Apache before 3.4, KAFKA-14372).
    holds_redirects : bool
        A redirect waits out the long poll (Apache before 3.2, KAFKA-13767).
    wakes_parked_on_followers : bool
        A follower's high watermark ends long polls (Apache since 3.4, KAFKA-14334).
    local_log_ms, local_log_bytes : int
        ``leader.election.eligible.local.log.ms`` and ``.bytes``: see `election`. -1 is off.
    metadata_lag_ms, replica_round_ms : pair of int
        Least and most time for news of the cluster to reach a broker, and between two fetches of a follower.
    broker_session_ms : int
        How long after a crash the controller notices (``broker.session.timeout.ms``).
    """

    racks: tuple[str, ...] = ("az-a", "az-b", "az-c")
    selector: Literal["rack_aware", "leader", "custom"] = "rack_aware"
    custom_selector: Selector | None = None
    answers_offset_not_available: bool = False
    fills_offsets_on_error: bool = False
    redirects_to_lagging: bool = False
    holds_redirects: bool = False
    wakes_parked_on_followers: bool = True
    max_fetch_version: int = 16
    max_list_offsets_version: int = 10
    session_slots: int = 1_000
    session_shards: int = 8
    min_session_idle_ms: int = 120_000
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_ms: int = 500
    replica_fetch_max_bytes: int = 1024 * 1024
    replica_backoff_ms: int = 1_000
    replica_round_ms: tuple[int, int] = (1, 5)
    metadata_lag_ms: tuple[int, int] = (0, 40)
    broker_session_ms: int = 9_000
    fetch_max_bytes: int = 55 * 1024 * 1024
    local_log_ms: int = -1
    local_log_bytes: int = -1
    unclean_leader_election: bool = False
    tiered: bool = False


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """What a topic overrides; None takes the cluster's value. Of `compression_type` only "zstd" matters (KIP-110)."""

    local_log_ms: int | None = None
    local_log_bytes: int | None = None
    unclean_leader_election: bool | None = None
    tiered: bool | None = None
    min_insync_replicas: int = 1
    compression_type: str = "producer"

    def resolved(self, cluster: ModelSettings) -> TopicSettings:
        """Return these settings with the cluster's in the place of each None."""
        return TopicSettings(
            local_log_ms=cluster.local_log_ms if self.local_log_ms is None else self.local_log_ms,
            local_log_bytes=cluster.local_log_bytes if self.local_log_bytes is None else self.local_log_bytes,
            unclean_leader_election=(
                cluster.unclean_leader_election
                if self.unclean_leader_election is None
                else self.unclean_leader_election
            ),
            tiered=cluster.tiered if self.tiered is None else self.tiered,
            min_insync_replicas=self.min_insync_replicas,
            compression_type=self.compression_type,
        )
