"""Traces as text: what happened when, one line each, without anything that differs from run to run."""

from __future__ import annotations

from collections.abc import Iterable

from connector.fetch.actions import FetchEvents, SendFetch, SendListOffsets, SendMetadata, SendOffsetForLeaderEpoch
from connector.model import NO_NODE, ClusterView, FetchPlan, FetchReply, PartitionReply
from connector.wire import error_codes

__all__ = ["trace_lines"]


def trace_lines(trace: Iterable[tuple[int, str, object]]) -> list[str]:
    """Return a line for each entry of a trace."""
    return [f"{at_ms:>7}  {what}: {_told(value)}" for at_ms, what, value in trace]


def _told(value: object) -> str:
    match value:
        case SendFetch():
            version = f" v{value.max_version}" if value.max_version is not None else ""
            return f"Fetch{version} {_plan(value.plan)}"
        case FetchReply():
            head = f"session {value.session_id}"
            if value.error_code:
                head += f" {error_codes.error_name(value.error_code)}"
            if value.throttle_ms:
                head += f" throttle {value.throttle_ms} ms"
            return " | ".join([head, *map(_partition, value.partitions)])
        case SendMetadata():
            return f"Metadata {' '.join(value.topics)}"
        case SendListOffsets() | SendOffsetForLeaderEpoch():
            return f"{type(value).__name__} {' '.join(map(str, value.queries))}"
        case ClusterView():
            leaders = (
                f"{each}@{info.leader_id}/{info.leader_epoch} isr {list(info.isr_ids)}"
                for each, info in sorted(value.partitions.items())
            )
            return " | ".join([f"nodes {sorted(value.nodes)}", *leaders, *map(str, sorted(value.topic_errors.items()))])
        case FetchEvents():
            return _events(value)
        case list():
            return " ".join(map(str, value))
        case _:
            return str(value)


def _plan(plan: FetchPlan) -> str:
    asked = " ".join(
        f"{each.topic_partition}@{each.fetch_offset}/{each.current_leader_epoch}" for each in plan.partitions
    )
    gone = " ".join(f"-{each.topic_partition}" for each in (*plan.forgotten, *plan.replaced))
    return f"({plan.session_id}, {plan.session_epoch}) {plan.rack!r} wait {plan.max_wait_ms} {asked} {gone}".rstrip()


def _partition(reply: PartitionReply) -> str:
    code = f" {error_codes.error_name(reply.error_code)}" if reply.error_code else ""
    preferred = f" -> {reply.preferred_read_replica}" if reply.preferred_read_replica != NO_NODE else ""
    hint = f" leader {reply.current_leader_id}/{reply.current_leader_epoch}" if reply.current_leader_epoch >= 0 else ""
    return f"{reply.topic_partition}{code} hw {reply.high_watermark} {len(reply.records)} B{preferred}{hint}"


def _events(events: FetchEvents) -> str:
    deliveries = [f"{each.topic_partition} [{each.start_offset}, {each.end_offset})" for each in events.deliveries]
    decisions = [
        f"{each.topic_partition} {each.outcome}{f' ({each.change})' if each.change else ''}"
        for each in events.decisions
    ]
    reset = [f"session reset: {events.session_reset}"] if events.session_reset else []
    return " | ".join([*deliveries, *decisions, *reset])
