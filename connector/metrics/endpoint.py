"""One ``/metrics`` per executor: how a Python worker joins it, starts it when it is missing, and how to find it.

Settings come from the executor's environment (``spark.executorEnv.<name>``), since they are about a machine:

==============================  ===============================================================================
variable                        meaning
==============================  ===============================================================================
``KAFKA_FOLLOWER_METRICS_PORT``  port to serve; taken ones are skipped, up to 15 further. 0 (default): any free one.
                                ``off``: no metrics
``KAFKA_FOLLOWER_METRICS_HOST``  address to bind. Default 0.0.0.0, as Spark binds its own UIs: Prometheus scrapes from
                                another machine. The numbers are no secrets, topic names and racks are all they tell
``KAFKA_FOLLOWER_METRICS_DIR``   where executors' folders are made; a local file system. Default: the temporary folder
==============================  ===============================================================================
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from connector.errors import ConfigError, ConfigProblem
from connector.metrics.address import metrics_url
from connector.metrics.catalog import RACK_INFO, starting_series
from connector.metrics.executor_folder import (
    LOG_FILE,
    PORT_FILE,
    is_served,
    lock_folder,
    make_folder,
    named_folders,
    read_address,
)
from connector.metrics.process_tree import ProcessIdentity, find_executor
from connector.metrics.recorder import NullRecorder, Recorder
from connector.metrics.slot import SlotRecorder

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Endpoint", "EndpointSettings", "executor_recorder", "list_endpoints"]

logger = logging.getLogger(__name__)

_PORT_VARIABLE: Final = "KAFKA_FOLLOWER_METRICS_PORT"
_HOST_VARIABLE: Final = "KAFKA_FOLLOWER_METRICS_HOST"
_FOLDER_VARIABLE: Final = "KAFKA_FOLLOWER_METRICS_DIR"
_OFF: Final = "off"
_LAST_PORT: Final = 65_535
_DEFAULT_HOST: Final = "0.0.0.0"  # noqa: S104 - see the module's docstring


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """How an executor serves its metrics; the first worker's settings hold for the exporter that it starts.

    Attributes
    ----------
    root : Path
        Where the executors' folders are made.
    host, port : str, int
        What to bind; port 0 is any free one, None is no endpoint at all.
    gauge_expiry_s : float
        How long a gauge lasts that nobody refreshes.
    restart_delay_s : float
        Between two starts of the exporter, so that one that can't run is not started by every new worker.
    """

    root: Path
    host: str = _DEFAULT_HOST
    port: int | None = 0
    gauge_expiry_s: float = 300.0
    restart_delay_s: float = 10.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings.

        Raises
        ------
        ConfigError
            The port is none.
        """
        return cls(
            root=_root_in(environ),
            host=environ.get(_HOST_VARIABLE) or _DEFAULT_HOST,
            port=_parse_port(environ.get(_PORT_VARIABLE, "").strip()),
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one executor of this machine serves its metrics."""

    executor_pid: int
    host: str
    port: int
    folder: Path

    @property
    def url(self) -> str:
        """The address to scrape from this machine."""
        return metrics_url(self.host, self.port)


class _Membership:
    """What this process knows and holds: its executor, its slot, and whether it complained.

    One per process; a fork's child holds no slot.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.executor: ProcessIdentity | None = None
        self.recorder: SlotRecorder | None = None
        self.folder: Path | None = None
        self.has_warned = False

    def forget_in_child(self) -> None:
        """Leave the slot to the parent. Its lock may be held by a thread that does not exist in the child."""
        self.lock = threading.Lock()
        if self.recorder is not None:
            self.recorder.abandon_in_child()
        self.executor = self.recorder = self.folder = None


_membership: Final = _Membership()
os.register_at_fork(after_in_child=_membership.forget_in_child)


def executor_recorder(
    *,
    rack: str | None,
    source: str,
    settings: EndpointSettings | None = None,
    executor: ProcessIdentity | None = None,
) -> Recorder:
    """Return the recorder of this process, and make sure that its executor's metrics are served.

    Call it once per task: it is cheap when all is well, and starts the exporter again when that has died. It never
    fails: what goes wrong is logged once, and the recorder then drops everything.

    Parameters
    ----------
    rack, source : str or None, str
        As resolved; shown as `kafka_follower_rack_info`.
    settings : EndpointSettings, optional
        Taken from the environment if not given.
    executor : ProcessIdentity, optional
        The process to end with. Found among the ancestors if not given, see `process_tree.find_executor`.
    """
    with _membership.lock:
        try:
            settings = settings or EndpointSettings.from_environment(os.environ)
            if settings.port is None:
                return NullRecorder()
            if executor is None:
                executor = _membership.executor = _membership.executor or find_executor()
            recorder = _join(settings, executor)
        except (OSError, ConfigError, subprocess.SubprocessError) as error:
            _warn_once("this worker's metrics are not recorded, reading goes on: %s", error)
            return NullRecorder()
    recorder.gauge(RACK_INFO, 1, rack or "", source)
    for spec, label_values in starting_series(rack, [rack] if rack else [], []):
        recorder.count(spec, 0, *label_values)
    return recorder


def list_endpoints(root: Path | None = None) -> list[Endpoint]:
    """Return the endpoints that our user's executors on this machine serve.

    Parameters
    ----------
    root : Path, optional
        `EndpointSettings.root`; taken from the environment if not given.
    """
    if root is None:
        root = _root_in(os.environ)
    endpoints = []
    for name, folder in named_folders(root):
        try:
            address = read_address(folder)
            if address is not None and is_served(name, folder):
                endpoints.append(Endpoint(name.executor.pid, *address, folder))
        except (FileNotFoundError, PermissionError):
            continue  # just gone; another user's
    return endpoints


def _join(settings: EndpointSettings, executor: ProcessIdentity) -> SlotRecorder:
    """Take a slot, once per process and folder, and see to the exporter."""
    folder = make_folder(settings.root, executor)
    recorder = _membership.recorder
    if recorder is None or _membership.folder != folder or not recorder.is_current():
        if recorder is not None:
            recorder.close()
        _membership.recorder = None
        recorder = _membership.recorder = SlotRecorder(folder)
        _membership.folder = folder
    _ensure_exporter(folder, settings, executor)
    return recorder


def _ensure_exporter(folder: Path, settings: EndpointSettings, executor: ProcessIdentity) -> None:
    """Start the exporter unless one runs or was started a moment ago."""
    lock_descriptor = lock_folder(folder)
    if lock_descriptor is None:
        return
    try:
        log_path = folder / LOG_FILE
        if log_path.exists():
            status = log_path.stat()
            if time.time() - status.st_mtime < settings.restart_delay_s:
                return
            if status.st_size > 0:
                last_line = log_path.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
                _warn_once("the executor's metrics exporter ended and is started again: %s", last_line)
        _start_exporter(folder, settings, executor, lock_descriptor)
    finally:
        os.close(lock_descriptor)


def _start_exporter(folder: Path, settings: EndpointSettings, executor: ProcessIdentity, lock_descriptor: int) -> None:
    """Start the exporter, which inherits the folder's lock, so that there is no moment without.

    The shell ends at once and leaves the exporter to init: it is nobody's child here, to be waited for by a worker
    or killed with one. `-P` keeps modules in the working folder from being taken for the standard library's.
    """
    previous = read_address(folder)
    if previous is not None:
        (folder / PORT_FILE).unlink()  # or `list_endpoints` would name a port that is not served yet
    command = [
        *("/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-P", "-m", "connector.metrics.exporter"),
        *("--folder", str(folder.absolute())),
        *("--executor-pid", str(executor.pid), "--executor-start", executor.start),
        *("--host", settings.host, "--port", str(settings.port)),
        *("--gauge-expiry-s", str(settings.gauge_expiry_s)),
        *(("--previous-port", str(previous[1])) if previous is not None else ()),
    ]
    import_path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with (folder / LOG_FILE).open("wb") as log:
        subprocess.run(  # noqa: S603 - no input of a user but what the operator set
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            close_fds=True,
            pass_fds=(lock_descriptor,),
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": import_path},
        )


def _root_in(environ: Mapping[str, str]) -> Path:
    return Path(environ.get(_FOLDER_VARIABLE) or tempfile.gettempdir())


def _parse_port(text: str) -> int | None:
    if text.lower() == _OFF:
        return None
    if not text:
        return 0
    if not text.isdecimal() or int(text) > _LAST_PORT:
        reason = f"must be a port from 0 (any free one) to {_LAST_PORT}, or {_OFF}"
        raise ConfigError((ConfigProblem(_PORT_VARIABLE, text, reason),))
    return int(text)


def _warn_once(message: str, error: object) -> None:
    if not _membership.has_warned:
        _membership.has_warned = True
        logger.warning(message, error)
