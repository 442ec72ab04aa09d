"""The papers say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connector.config import option_table
from connector.metrics.catalog import CATALOG
from tests.diagrams import generated_blocks

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")


def test_the_readme_holds_the_option_table_of_the_declarations() -> None:
    assert option_table() in README, "run: python -c 'from connector.config import option_table; print(option_table())'"


def test_the_readme_names_every_metric_with_its_labels_and_no_other() -> None:
    documented = dict(re.findall(r"^\| `(kafka_follower_\w+)\{([^}]*)\}`", README, re.MULTILINE))
    assert documented == {spec.name: ",".join(spec.labels) for spec in CATALOG}


def test_the_design_names_every_room_and_no_other() -> None:
    rooms = {path.name for path in (ROOT / "connector").iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^\| `connector/(\w+)/`", DESIGN, re.MULTILINE)) == rooms


@pytest.mark.parametrize(("name", "block"), generated_blocks().items(), ids=lambda value: value.split("\n")[0])
def test_the_design_shows_the_tables_that_the_engine_runs_on(name: str, block: str) -> None:
    assert f"<!-- generated: {name} -->\n{block}\n<!-- end -->" in DESIGN, "run: python -m tests.diagrams"


def test_the_readme_stays_short_and_starts_with_its_two_commands() -> None:
    lines = README.splitlines()
    assert len(lines) < 200
    head = "\n".join(lines[:40])
    assert "make run" in head
    assert "make test" in head


def test_every_target_that_the_papers_name_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {name for text in (README, DESIGN, contributing) for name in re.findall(r"(?:`|^)make (\w+)", text, re.M)}
    assert named <= targets
