"""A thousand histories: the engine keeps every promise in all of them."""

from __future__ import annotations

import pytest

from tests.model.__main__ import failing_reports, failure_lines
from tests.model.shrink import shrunken

SEED_COUNT = 1_000
PROCESS_COUNT = 2


@pytest.mark.timeout(600)
def test_the_engine_keeps_its_promises_in_a_thousand_histories() -> None:
    failing = list(failing_reports(range(SEED_COUNT), PROCESS_COUNT))
    seeds = [report.history.seed for report in failing]
    assert not failing, f"seeds {seeds} fail; the first:\n" + "\n".join(failure_lines(shrunken(failing[0])))
