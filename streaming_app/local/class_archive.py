"""Kafka's loaded classes, kept between starts: brokers come up in about half the time and share the memory.

The JVM writes such an archive when it ends in order (class data sharing, JEP 350). So the first cluster on a machine
has one broker record its classes, and later ones use what it left in the user's cache folder. A JVM ignores an archive
that is not its own (another build of Java, changed jars).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming_app.local.artifacts import cache_folder
from streaming_app.local.java import JavaHome

__all__ = ["ClassArchive"]

QUIET: Final = "-Xlog:cds=off"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive for one Java and one class path is kept; it may not exist yet."""

    path: Path

    @classmethod
    def of(cls, java: JavaHome, class_path: str) -> ClassArchive:
        """Return the archive that fits a Java and a class path."""
        fingerprint = hashlib.sha256(f"{java.folder}\n{java.version_text}\n{class_path}".encode()).hexdigest()[:16]
        return cls(cache_folder() / "classes" / f"kafka-{fingerprint}.jsa")

    @property
    def is_missing(self) -> bool:
        """Whether it has to be recorded first."""
        return not self.path.exists()

    def use_options(self) -> Sequence[str]:
        """Return the JVM's options to start from the archive."""
        return () if self.is_missing else (f"-XX:SharedArchiveFile={self.path}", QUIET)

    def record_options(self, scratch: Path) -> Sequence[str]:
        """Return the JVM's options to write an archive to `scratch` when it ends in order."""
        return (f"-XX:ArchiveClassesAtExit={scratch}", QUIET)

    def adopt(self, scratch: Path) -> None:
        """Keep what a JVM recorded, if it did; the archive appears whole or not at all."""
        if not scratch.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        partial.write_bytes(scratch.read_bytes())
        partial.rename(self.path)
