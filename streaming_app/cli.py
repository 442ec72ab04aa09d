"""The console script ``kafka-follower``; `streaming_app.main` takes the same arguments as its ``run``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from streaming_app import main as job

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kafka-follower", description="Read Kafka from the nearest replica into tables, with Spark."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a job file as a streaming query", description=job.DESCRIPTION)
    job.add_arguments(run)
    arguments = parser.parse_args(argv)
    return job.run_file(arguments.config)


if __name__ == "__main__":
    sys.exit(main())
