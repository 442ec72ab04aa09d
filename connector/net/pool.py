"""Fetchers and cluster clients of this process, kept from one task to the next.

Only a cache: a Python worker lives as long as Spark likes, and any worker may be given any range. An empty pool gives
the same rows as a warm one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connector.config import ClientConfig
from connector.metrics.endpoint import executor_recorder
from connector.net.cluster_client import ClusterClient
from connector.net.fetcher import Fetcher
from connector.rack.resolve import ResolvedRack, resolve_rack

__all__ = ["borrow_fetcher", "cluster_client"]

_log = logging.getLogger(__name__)


class _Pool:
    """Idle fetchers by configuration, and one client per configuration.

    A fetcher that is in use is not in the pool: two reads that take turns in one thread get one each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[ClientConfig, list[Fetcher]] = {}
        self._clients: dict[ClientConfig, ClusterClient] = {}
        self._racks: dict[ClientConfig, ResolvedRack] = {}

    def take(self, config: ClientConfig) -> Fetcher:
        with self._lock:
            rack = self._rack(config)
            idle = self._idle.setdefault(config, [])
            fetcher = idle.pop() if idle else Fetcher(config, rack.rack)
        # Each time: the exporter of this executor is started again should it have died.
        fetcher.use_recorder(executor_recorder(rack=rack.rack, source=rack.source))
        return fetcher

    def give_back(self, config: ClientConfig, fetcher: Fetcher) -> None:
        with self._lock:
            self._idle.setdefault(config, []).append(fetcher)

    def client(self, config: ClientConfig) -> ClusterClient:
        with self._lock:
            if config not in self._clients:
                self._clients[config] = ClusterClient(config)
            return self._clients[config]

    def _rack(self, config: ClientConfig) -> ResolvedRack:
        if config not in self._racks:
            resolved = resolve_rack(config.rack, config.client_rack, os.environ)
            if resolved.warning:
                _log.warning("%s", resolved.warning)
            self._racks[config] = resolved
        return self._racks[config]


_pools: Final[dict[int, _Pool]] = {}


def _pool() -> _Pool:
    """Return this process's pool: a forked child must not share its parent's connections."""
    return _pools.setdefault(os.getpid(), _Pool())


@contextmanager
def borrow_fetcher(config: ClientConfig) -> Iterator[Fetcher]:
    """Lend a fetcher for one read; it goes back afterwards, unless the read failed."""
    fetcher = _pool().take(config)
    is_sound = False
    try:
        yield fetcher
        is_sound = True
    except GeneratorExit:
        # The task was cancelled or needs no more rows: the fetcher has cleaned up after its read.
        is_sound = True
        raise
    finally:
        if is_sound:
            _pool().give_back(config, fetcher)
        else:
            fetcher.close()


def cluster_client(config: ClientConfig) -> ClusterClient:
    """Return this process's client for planning."""
    return _pool().client(config)
