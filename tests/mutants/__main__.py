"""Plant each bug in a copy of the engine and see that the simulator or the engine's tests find it.

``python -m tests.mutants [--seeds N]`` runs every planted bug through so many simulated histories first, then through
the engine's unit tests. It prints who found it and after how many seeds, and fails when a bug survives both.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.catalog import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
_PROCESSES = 2
_SEED_LINE = re.compile(r"seed (\d+)")
_COPIED = ("connector", "tests/model", "tests/unit/fetch", "tests/unit/records", "tests/golden", "pyproject.toml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--seeds", type=int, default=300, help="simulated histories for each planted bug")
    parser.add_argument("--only", default="", help="words of the name of the bugs to plant")
    arguments = parser.parse_args()
    chosen = [each for each in MUTANTS if arguments.only in each.name]
    if (found := hunt(None, arguments.seeds)) is not None:
        sys.stdout.write(f"without any planted bug there is a failure already: {found}\n")
        return 1
    with ThreadPoolExecutor(_PROCESSES) as pool:
        verdicts = list(pool.map(lambda each: hunt(each, arguments.seeds), chosen))
    survivors = [mutant.name for mutant, verdict in zip(chosen, verdicts, strict=True) if verdict is None]
    for mutant, verdict in zip(chosen, verdicts, strict=True):
        sys.stdout.write(f"{verdict or 'SURVIVED':>40}  {mutant.name}  ({mutant.seen_in})\n")
    sys.stdout.write(f"{len(chosen) - len(survivors)} of {len(chosen)} planted bugs were found\n")
    return 1 if survivors else 0


def hunt(mutant: Mutant | None, seed_count: int) -> str | None:
    """Return who found a planted bug, or a bug that nobody planted, or None."""
    name = "no planted bug" if mutant is None else mutant.name
    with tempfile.TemporaryDirectory(prefix="kafka-follower-mutant-") as folder:
        copy = Path(folder)
        make_copy(copy)
        if mutant is not None:
            plant(mutant, copy)
        started = time.monotonic()
        simulated = run(copy, "-m", "tests.model", "--seeds", str(seed_count), "--processes", "1", "--no-shrink")
        if simulated.returncode != 0:
            found = _SEED_LINE.search(simulated.stdout)
            if found is None:
                raise RuntimeError(
                    f"{name}: the simulator ended without naming a seed:\n{simulated.stdout}{simulated.stderr}"
                )
            return f"simulator, {int(found[1]) + 1} seeds, {time.monotonic() - started:.0f} s"
        tests = run(
            copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/unit/fetch", "tests/unit/records"
        )
        if tests.returncode == 0:
            return None
        failed = re.search(r"FAILED \S+::(\w+)", tests.stdout)
        if failed is None:
            raise RuntimeError(f"{name}: the tests did not run:\n{tests.stdout}{tests.stderr}")
        return f"test {failed[1]}"[:60]


def make_copy(copy: Path) -> None:
    """Copy what the simulator and the engine's tests need."""
    for name in _COPIED:
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def plant(mutant: Mutant, copy: Path) -> None:
    """Change the words."""
    path = copy / mutant.path
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.before) != 1:
        raise RuntimeError(f"{mutant.name}: its place occurs {text.count(mutant.before)} times in {mutant.path}")
    path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=copy, env=environment, text=True, capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
