"""The exporter process: serves ``/metrics`` of one executor, and ends with it.

`connector.metrics.endpoint` starts it with the folder's lock in hand. It imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server

from connector.metrics.executor_folder import PORT_FILE, remove_stale_folders, write_exporter
from connector.metrics.process_tree import ProcessIdentity, ProcessWatch
from connector.metrics.scrape import SlotCollector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main", "ports_to_try"]

_PORT_ATTEMPTS: Final = 16
_FOLDER_CHECK_INTERVAL_S: Final = 5.0
_LAST_PORT: Final = 65_535


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the executor ends, then remove its folder; also end when the folder is taken away."""
    options = _parse(arguments)
    folder: Path = options.folder
    watch = ProcessWatch(ProcessIdentity(options.executor_pid, options.executor_start))
    folder_id = folder.stat()
    registry = CollectorRegistry()
    registry.register(SlotCollector(folder, options.gauge_expiry_s))
    port = _serve(registry, options.host, ports_to_try(options.port, options.previous_port))
    write_exporter(folder)
    _write_port(folder, options.host, port)
    remove_stale_folders(folder.parent)
    _silence_stderr()
    while not watch.wait_end(_FOLDER_CHECK_INTERVAL_S):
        if not (folder.exists() and os.path.samestat(folder.stat(), folder_id)):
            return
    shutil.rmtree(folder, ignore_errors=True)  # what an orphaned worker still writes goes with the next exporter


def ports_to_try(port: int, previous_port: int | None) -> Iterator[int]:
    """Yield the ports to bind, best first.

    A restarted exporter takes the port that was scraped before. Executors that share a machine and a configured port
    spread over the ports that follow it, as Spark's own UIs do; 0 lets the system choose.
    """
    if previous_port is not None:
        yield previous_port
    last = port if port == 0 else min(port + _PORT_ATTEMPTS - 1, _LAST_PORT)
    yield from range(port, last + 1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="connector.metrics.exporter", description="Serve one executor's metrics.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--executor-pid", type=int, required=True)
    parser.add_argument("--executor-start", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--previous-port", type=int)
    parser.add_argument("--gauge-expiry-s", type=float, required=True)
    return parser.parse_args(arguments)


def _serve(registry: CollectorRegistry, host: str, ports: Iterator[int]) -> int:
    for port in ports:
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return server.server_port
    raise OSError(errno.EADDRINUSE, f"all {_PORT_ATTEMPTS} ports from the configured one are taken on {host}")


def _write_port(folder: Path, host: str, port: int) -> None:
    """Say where we serve; readers see the whole file or none."""
    unfinished = folder / f"{PORT_FILE}.new"
    unfinished.write_text(f"{host}:{port}\n", encoding="ascii")
    unfinished.replace(folder / PORT_FILE)


def _silence_stderr() -> None:
    """Stop writing the log: from here on there would be only scrapers that hung up, for as long as we live."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


if __name__ == "__main__":
    main()
