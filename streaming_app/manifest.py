"""Which files of a file sink's folder count: its manifest ``_spark_metadata``, read without Spark.

A folder that a streaming query writes to may hold files of attempts that never committed. Spark's own readers know
that; others need this list. Counterpart: Spark's ``FileStreamSinkLog`` (``CompactibleFileStreamLog``).

The manifest has one file for each micro-batch, ``0``, ``1``, ``2`` …, with the files which that batch added. Every
tenth (``spark.sql.streaming.fileSink.log.compactInterval``) is ``9.compact`` instead and holds all files up to then;
the smaller ones before it may be gone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from connector.errors import ConnectorError

__all__ = ["ManifestError", "committed_files"]

_FOLDER: Final = "_spark_metadata"
_NAME: Final = re.compile(r"(\d+)(\.compact)?", re.ASCII)
_VERSION: Final = "v1"


class ManifestError(ConnectorError):
    """A file sink's manifest is missing, incomplete, or of a form that is not known here."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        """Return where and what."""
        return f"{self.path}: {self.reason}"


def committed_files(folder: Path) -> list[Path]:
    """Return the data files that committed micro-batches added, in the order of their batches.

    Parameters
    ----------
    folder
        The sink's path on a local file system.

    Raises
    ------
    ManifestError
        There is no manifest, one of its batches is missing, or it can't be read.
    """
    manifest = folder / _FOLDER
    if not manifest.is_dir():
        raise ManifestError(str(manifest), "there is no manifest: no micro-batch has committed here")
    batches: dict[int, Path] = {}
    latest_compact = -1
    for path in manifest.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue  # checksums and temporary files of Hadoop
        batch_id = int(name[1])
        batches[batch_id] = path
        if name[2]:
            latest_compact = max(latest_compact, batch_id)
    needed = range(max(latest_compact, 0), max(batches, default=-1) + 1)
    missing = [batch_id for batch_id in needed if batch_id not in batches]
    if missing:
        raise ManifestError(str(manifest), f"the file of batch {missing[0]} is missing")
    return [file for batch_id in needed for file in _added_files(batches[batch_id])]


def _added_files(path: Path) -> list[Path]:
    version, *entries = path.read_text(encoding="utf-8").splitlines()
    if version != _VERSION:
        raise ManifestError(str(path), f"its version is {version!r}, only {_VERSION!r} can be read")
    files: list[Path] = []
    for entry in map(json.loads, entries):
        url = urlsplit(entry["path"])
        if url.scheme not in ("", "file"):
            raise ManifestError(str(path), f"{entry['path']} is on another file system than the local one")
        if entry["action"] != "add":
            raise ManifestError(str(path), f"its action {entry['action']!r} is not known")
        files.append(Path(unquote(url.path)))
    return files
