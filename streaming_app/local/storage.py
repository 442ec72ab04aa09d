"""Format the data folders of a cluster's brokers, with Kafka's own tool but one JVM start for all of them.

The tool formats the first broker's folder; the others get copies with a node id and a directory id of their own, which
is all that differs when the tool formats each (with a static controller quorum the bootstrap records name no node).
"""

from __future__ import annotations

import base64
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streaming_app.local.broker import LocalBroker
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.supervise import run_supervised, telling_tail_of

__all__ = ["format_storage"]

FORMAT_TIMEOUT_S: Final = 120.0
IDENTITY_FILE: Final = "meta.properties"


def format_storage(brokers: Sequence[LocalBroker], jvm_options: Sequence[str]) -> None:
    """Format the brokers' data folders under one new cluster id, unless they are formatted.

    Raises
    ------
    LocalClusterError
        Kafka's tool refuses the brokers' properties; its output is attached.
    """
    first, *others = brokers
    if all((broker.data_folder / IDENTITY_FILE).exists() for broker in brokers):
        return
    arguments = ("format", "--cluster-id", new_uuid(), "--config", str(first.properties_path), "--ignore-formatted")
    log = first.folder / "format.log"
    log.unlink(missing_ok=True)
    code = run_supervised(
        first.java_command("kafka.tools.StorageTool", *arguments, jvm_options=jvm_options),
        name="Kafka's storage tool",
        log_path=log,
        timeout_s=FORMAT_TIMEOUT_S,
        env={**os.environ, **first.environment},
    )
    if code != 0:
        raise LocalClusterError(
            f"Kafka refuses the brokers' configuration ({first.properties_path}): correct what broker_config sets.",
            telling_tail_of(log),
        )
    for other in others:
        shutil.copytree(first.data_folder, other.data_folder, dirs_exist_ok=True)
        write_identity(other.data_folder / IDENTITY_FILE, other.node_id)


def write_identity(path: Path, node_id: int) -> None:
    """Give a copied folder its own node id and directory id."""
    own = {"node.id": str(node_id), "directory.id": new_uuid()}
    pairs = (line.partition("=") for line in path.read_text(encoding="ascii").splitlines() if not line.startswith("#"))
    path.write_text("".join(f"{key}={own.get(key, value)}\n" for key, _, value in pairs), encoding="ascii")


def new_uuid() -> str:
    """Return a random UUID in Kafka's text form (URL-safe base64, 22 characters, not starting with a dash)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
