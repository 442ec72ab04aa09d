"""``python -m tests.model --seeds N [--first S] [--processes P]``, or ``--seed S --trace``: run histories.

Prints each failing seed with the check that fired, a history that is as short as a bounded search for one finds, and
how to run that again. Exit status 1 tells of a failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, replace
from multiprocessing import get_context
from typing import Any, Final

from tests.model.histories import History, draw_history
from tests.model.shrink import shrunken
from tests.model.simulator import Report, simulate
from tests.model.tracing import trace_lines

__all__ = ["failing_reports", "failure_lines", "main"]

SHOWN_PER_CHECK: Final = 3


def failing_reports(seeds: Sequence[int], processes: int) -> Iterator[Report]:
    """Yield what came of each seed whose history fails, in the order of the seeds."""
    if processes <= 1:
        yield from (report for report in map(_run, seeds) if report is not None)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from (report for report in pool.imap(_run, seeds, chunksize=20) if report is not None)


def _run(seed: int) -> Report | None:
    report = simulate(draw_history(seed))
    if report.violation is None:
        return None
    report.trace.clear()  # what it holds does not travel between processes
    return report


def failure_lines(report: Report) -> list[str]:
    """Tell seed and violation, what the history is made of, and how to run it again."""
    events = report.history.events
    kept = [at for at, event in enumerate(draw_history(report.history.seed).events) if event in events]
    keeping = "".join(f" {at}" for at in kept)
    return [
        f"seed {report.history.seed}: {report.violation}",
        *_history_lines(report.history),
        f"  again: python -m tests.model --seed {report.history.seed} --keep{keeping} --trace",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    given = _parser().parse_args(arguments)
    if given.seed is not None:
        return _replay(given.seed, given.keep, is_traced=given.trace)
    started = time.monotonic()
    by_check: Counter[str] = Counter()
    for report in failing_reports(range(given.first, given.first + given.seeds), given.processes):
        assert report.violation is not None
        by_check[report.violation.check] += 1
        if by_check[report.violation.check] <= SHOWN_PER_CHECK:
            _tell(failure_lines(report if given.no_shrink else shrunken(report)))
        if given.no_shrink:
            return 1
    seconds = time.monotonic() - started
    failures = ", ".join(f"{count} {check}" for check, count in by_check.items()) or "none"
    rate = given.seeds / seconds * 60
    _tell([f"{given.seeds} histories in {seconds:.1f} s ({rate:.0f} a minute); failures: {failures}"])
    return 1 if by_check else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Run seeded histories.")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--no-shrink", action="store_true", help="stop at the first failure and tell it as it is")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--keep", type=int, nargs="*", help="with --seed: of its events, only these (counted from 0)")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell all that happens")
    return parser


def _replay(seed: int, kept: Sequence[int] | None, *, is_traced: bool) -> int:
    history = draw_history(seed)
    if kept is not None:
        history = replace(history, events=tuple(history.events[at] for at in kept))
    report = simulate(history)
    _tell(_history_lines(history))
    if is_traced:
        _tell(trace_lines(report.trace))
    counts = f"{report.request_count} requests, {report.delivery_count} deliveries, {report.virtual_ms} ms"
    _tell([f"seed {seed}: {report.violation or 'all checks hold'} ({counts})"])
    return 0 if report.violation is None else 1


def _history_lines(history: History) -> list[str]:
    topics = "; ".join(f"{topic.name} {' '.join(map(str, topic.assignments))}" for topic in history.topics)
    settings = (_told_settings(each) for each in (history.cluster, history.network, history.engine))
    return [f"  {line}" for line in (*settings, topics, *map(str, history.reads), *map(str, history.events))]


def _told_settings(settings: Any) -> str:
    """Return a dataclass with the fields that are not as usual."""
    told = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.default is MISSING or value != each.default:
            told.append(f"{each.name}={value}")
    return f"{type(settings).__name__}: {', '.join(told)}"


def _tell(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
