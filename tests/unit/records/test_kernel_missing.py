"""Without the compiled record loop, importing the room says what to do."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import connector
from connector.errors import ConnectorError, KernelMissing

SOURCE = Path(connector.__file__).parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The connector as it is before anybody has built it."""
    shutil.copytree(SOURCE, tmp_path / "connector", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


@pytest.mark.parametrize("preparation", ["", "import sys; sys.modules['cython'] = None; "], ids=["cython", "no cython"])
def test_import_says_how_to_build(checkout: Path, preparation: str) -> None:
    statement = preparation + (
        "from connector.errors import KernelMissing\n"
        "try: import connector.records.arrow\n"
        "except KernelMissing as missing: print(missing)"
    )
    told = subprocess.run(
        [sys.executable, "-c", statement], cwd=checkout, capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.startswith("connector.records.kernels is not compiled for this Python (only its source is there")
    assert "make setup" in told.stdout


def test_it_is_an_import_error_that_pickles() -> None:
    missing = KernelMissing("module", "found")
    assert isinstance(missing, ImportError)
    assert isinstance(missing, ConnectorError)
    copy = pickle.loads(pickle.dumps(missing))
    assert (copy.module, copy.found, str(copy)) == ("module", "found", str(missing))
