"""Every planted bug has its place: the catalogue follows the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.catalog import MUTANTS, Mutant

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_changes_one_place_and_leaves_python(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1
    ast.parse(text.replace(mutant.before, mutant.after))
