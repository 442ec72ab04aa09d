"""A file of named doubles that other processes can read at any time: prometheus-client's mmap format.

prometheus-client writes such files itself once ``PROMETHEUS_MULTIPROC_DIR`` is set. That variable changes every
metric of the process, the user's too, so its file class is used directly.
"""

from __future__ import annotations

import importlib.util
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["ValueFile", "read_values", "series_key"]

_INITIAL_BYTES: Final = 1 << 16
_FILE_HEADER_BYTES: Final = 8
_ENTRY_HEADER_BYTES: Final = 4
_ENTRY_VALUE_BYTES: Final = 16
_ALIGNMENT_BYTES: Final = 8


class _MmapedDict(Protocol):
    """What is used of `prometheus_client.mmap_dict.MmapedDict`."""

    def read_value(self, key: str) -> tuple[float, float]: ...
    def write_value(self, key: str, value: float, timestamp: float) -> None: ...
    def close(self) -> None: ...


def _load_mmap_dict() -> Any:  # noqa: ANN401 - a module
    """Load one module of prometheus-client without its package.

    The package imports an HTTP server and TLS, some 20 to 60 ms that every cold worker would pay.
    """
    package = importlib.util.find_spec("prometheus_client")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("prometheus-client is not installed", name="prometheus_client")
    path = os.path.join(package.submodule_search_locations[0], "mmap_dict.py")
    spec = importlib.util.spec_from_file_location("connector.metrics._mmap_dict", path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module at {path}", name="prometheus_client.mmap_dict")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_mmap_dict: Final = _load_mmap_dict()


def series_key(family: str, name: str, labels: Sequence[str], label_values: Sequence[str], help_text: str) -> str:
    """Return the key under which prometheus-client files keep a series: JSON of family, name, labels and help."""
    key: str = _mmap_dict.mmap_key(family, name, labels, label_values, help_text)
    return key


def read_values(path: Path) -> Iterable[tuple[str, float, float]]:
    """Return key, value and timestamp (seconds) of each entry.

    The writer may be at work: an entry counts once it is complete.
    """
    if path.stat().st_size < _FILE_HEADER_BYTES:
        return ()  # just made by a worker that is about to fill it
    return [
        (key, value, time_s) for key, value, time_s, _ in _mmap_dict.MmapedDict.read_all_values_from_file(str(path))
    ]


class ValueFile:
    """The writing side of one file; what is there already is continued. Not thread-safe.

    Its blocks are written before they are mapped: storing to a mapped hole on a full disk kills the process
    (SIGBUS), where writing a file just fails.

    Raises
    ------
    OSError
        The file can't be made or filled, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size_bytes = _reserve(path, _INITIAL_BYTES)
        self._entries, self._known = _open_entries(path)
        self._used_bytes = _FILE_HEADER_BYTES + sum(map(_entry_bytes, self._known))

    def add(self, key: str) -> float:
        """Make sure that the key has an entry; return its value, 0 for a new one."""
        if key not in self._known:
            entry_bytes = _entry_bytes(key)
            if self._used_bytes + entry_bytes > self._size_bytes:
                self._grow(entry_bytes)
            self._known.add(key)
            self._used_bytes += entry_bytes
        value, _ = self._entries.read_value(key)
        return value

    def write(self, key: str, value: float, time_s: float) -> None:
        """Store a value under a key that was added."""
        self._entries.write_value(key, value, time_s)

    def close(self) -> None:
        """Let the file go; what was written stays."""
        self._entries.close()

    def _grow(self, entry_bytes: int) -> None:
        """Grow the file before `MmapedDict` would, which makes holes."""
        size_bytes = _reserve(self._path, 2 * self._size_bytes + entry_bytes)
        entries, _ = _open_entries(self._path)
        self._entries.close()
        self._entries, self._size_bytes = entries, size_bytes


def _open_entries(path: Path) -> tuple[_MmapedDict, set[str]]:
    """Map the file; return it and its keys."""
    try:
        known = {key for key, _, _ in read_values(path)}
    except (RuntimeError, ValueError, struct.error) as error:
        raise OSError(f"{path} is damaged; remove it: {error}") from error
    return _mmap_dict.MmapedDict(str(path)), known


def _entry_bytes(key: str) -> int:
    """Return what an entry takes: length, key, 1 to 8 bytes of padding, value and timestamp."""
    head_bytes = _ENTRY_HEADER_BYTES + len(key.encode())
    return head_bytes + _ALIGNMENT_BYTES - head_bytes % _ALIGNMENT_BYTES + _ENTRY_VALUE_BYTES


def _reserve(path: Path, size_bytes: int) -> int:
    """Fill the file with zeros up to a size; return the size, which is larger when it was."""
    with path.open("ab") as file:
        missing_bytes = size_bytes - file.tell()
        if missing_bytes > 0:
            file.write(bytes(missing_bytes))
        return file.tell()
