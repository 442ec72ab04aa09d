"""Smaller histories that still fail: delta debugging over a list of parts, with a bound on the tries.

Spec: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), algorithm ddmin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeVar

from connector.fetch.engine import FetchEngine
from tests.model.histories import Event
from tests.model.simulator import MakeEngine, Report, simulate

__all__ = ["shrink", "shrunken"]

TRY_LIMIT: Final = 200
Part = TypeVar("Part")


def shrunken(report: Report, make_engine: MakeEngine = FetchEngine) -> Report:
    """Return what comes of the shortest list of events found for which the same check fires."""
    history, violation = report.history, report.violation

    def is_failing(events: tuple[Event, ...]) -> bool:
        found = simulate(replace(history, events=events), make_engine).violation
        return found is not None and violation is not None and found.check == violation.check

    return simulate(replace(history, events=shrink(history.events, is_failing, TRY_LIMIT)), make_engine)


def shrink(parts: Sequence[Part], is_failing: Callable[[tuple[Part, ...]], bool], try_limit: int) -> tuple[Part, ...]:
    """Return a part of `parts`, in their order, that still fails; of two such parts, one that lacks more.

    Parameters
    ----------
    parts : sequence
        What fails as a whole.
    is_failing : callable
        Whether a selection of the parts fails. Must be a function of its argument alone.
    try_limit : int
        At most so many selections are tried; the smallest failing one found until then is returned.
    """
    smallest = tuple(parts)
    chunk_count = 1
    tries_left = try_limit
    while smallest and tries_left > 0:
        chunks = _chunks(len(smallest), chunk_count)
        for start, stop in chunks:
            rest = smallest[:start] + smallest[stop:]
            tries_left -= 1
            if is_failing(rest):
                smallest = rest
                chunk_count = max(1, chunk_count - 1)
                break
            if tries_left <= 0:
                break
        else:
            if chunk_count >= len(smallest):
                break
            chunk_count = min(len(smallest), chunk_count * 2)
    return smallest


def _chunks(size: int, chunk_count: int) -> list[tuple[int, int]]:
    bounds = [size * each // chunk_count for each in range(chunk_count + 1)]
    return [(start, stop) for start, stop in pairwise(bounds) if start < stop]
