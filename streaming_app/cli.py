"""The console script ``kafka-follower``. Its ``run`` does what `streaming_app.main` does under spark-submit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["RUN_DESCRIPTION", "add_run_arguments", "main"]

RUN_DESCRIPTION: Final = (
    "Read a topic of JSON orders and append them to partitioned Parquet, until asked to stop (SIGTERM or Ctrl-C)."
)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what a job is started with."""
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="job file, such as conf/demo.toml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kafka-follower", description="Read Kafka from the nearest replica into tables, with Spark."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_run_arguments(
        commands.add_parser("run", help="run a job file as a streaming query", description=RUN_DESCRIPTION)
    )
    arguments = parser.parse_args(argv)
    from streaming_app.job import run_file  # a second of Spark's modules, which --help can do without

    return run_file(arguments.config)


if __name__ == "__main__":
    sys.exit(main())
