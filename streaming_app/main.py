"""What spark-submit is given (``streaming_app/main.py --config conf/demo.toml``): a topic of orders → Parquet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a script: Python put this file's folder on the path where the package's parent belongs
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from streaming_app.cli import RUN_DESCRIPTION, add_run_arguments
from streaming_app.job import run_file


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and run the job."""
    parser = argparse.ArgumentParser(description=RUN_DESCRIPTION)
    add_run_arguments(parser)
    return run_file(parser.parse_args(argv).config)


if __name__ == "__main__":
    sys.exit(main())
