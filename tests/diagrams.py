"""The fetch room's tables as diagrams and tables for DESIGN.md: ``python -m tests.diagrams`` prints them.

A test holds DESIGN.md against them, so that the picture is always the table that the engine runs on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from connector.fetch.decisions import ERROR_RULES
from connector.fetch.progress import POSITION_TRANSITIONS, PositionState
from connector.fetch.replica import REPLICA_TRANSITIONS, ReplicaState
from connector.fetch.session import SESSION_RULES, NextRequest
from connector.wire.error_codes import error_name

__all__ = ["generated_blocks"]

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def generated_blocks() -> dict[str, str]:
    """Return every generated block of DESIGN.md by its name."""
    return {
        "replica": _state_diagram(REPLICA_TRANSITIONS, ReplicaState.ASKING_LEADER),
        "position": _state_diagram(POSITION_TRANSITIONS, PositionState.FETCHING),
        "session": "\n".join(_session_diagram()),
        "session answers": "\n".join(_session_table()),
        "errors": "\n".join(_error_table()),
    }


def _state_diagram(transitions: Mapping[tuple[_State, _Event], _State], first: _State) -> str:
    """Draw a table of transitions; events that lead from one state to another the same way share an arrow."""
    arrows: dict[tuple[_State, _State], list[str]] = {}
    for (state, event), next_state in transitions.items():
        arrows.setdefault((state, next_state), []).append(str(event))
    lines = ["```mermaid", "stateDiagram-v2", f"  [*] --> {_node(first)}"]
    lines += [f'  state "{state}" as {_node(state)}' for state in type(first)]
    lines += [f"  {_node(state)} --> {_node(after)}: {' / '.join(events)}" for (state, after), events in arrows.items()]
    return "\n".join([*lines, "```"])


def _session_diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"  [*] --> {_node(NextRequest.FULL)}"
    yield '  state "request under way" as under_way'
    for request in NextRequest:
        yield f'  state "{request}" as {_node(request)}'
        yield f"  {_node(request)} --> under_way: sent"
    for request in NextRequest:
        events = [str(event) for event, rule in SESSION_RULES.items() if rule.next_request is request]
        yield f"  under_way --> {_node(request)}: {' / '.join(events)}"
    yield "```"


def _node(state: StrEnum) -> str:
    return state.name.lower()


def _session_table() -> Iterator[str]:
    yield "| event | next request to the node | answer used | counts as reset |"
    yield "|---|---|---|---|"
    for event, rule in SESSION_RULES.items():
        extra = "; metadata is asked for" if rule.is_refresh_wanted else ""
        yield f"| {event} | {rule.next_request}{extra} | {_yes(rule.is_data_used)} | {_yes(rule.is_reset)} |"


def _error_table() -> Iterator[str]:
    yield "| error code | from the leader | from a follower |"
    yield "|---|---|---|"
    for code, rule in ERROR_RULES.items():
        yield f"| {error_name(code)} ({code}) | {rule.at_leader} | {rule.at_follower} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    for name, block in generated_blocks().items():
        sys.stdout.write(f"<!-- generated: {name} -->\n{block}\n<!-- end -->\n\n")
