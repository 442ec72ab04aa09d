"""A standalone Spark cluster on this machine: a master, and one worker per rack that has its rack in its environment.

Spark passes a worker's environment on to its executors and they to their Python workers, so that every executor finds
its own rack in ``KAFKA_CLIENT_RACK``, as it does where each zone's machines set it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import URLError

from streaming_app.local.artifacts import spark_home
from streaming_app.local.errors import LocalClusterError, ProcessDied
from streaming_app.local.java import QUICK_START_OPTIONS, JavaHome, find_java
from streaming_app.local.leftovers import CLUSTER_MARKER, wait_nothing_left
from streaming_app.local.ports import HOST, free_ports, start_on_free_ports
from streaming_app.local.supervise import SupervisedProcess

__all__ = ["DaemonDied", "LocalSpark", "LocalWorker", "SparkDaemon"]

RACK_VARIABLE: Final = "KAFKA_CLIENT_RACK"
DAEMON_JAVA_OPTIONS: Final = " ".join(QUICK_START_OPTIONS)
MASTER_JAVA_OPTIONS: Final = "-Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false"
"""A taken port must be an error (workers are not told of the next one up); the REST server's port is a fixed one."""
READY_TIMEOUT_S: Final = 90.0
STOP_GRACE_S: Final = 5.0
ORPHAN_WAIT_S: Final = 5.0
POLL_S: Final = 0.1


class DaemonDied(ProcessDied):
    """The master or a worker ended although nobody asked it to."""


class SparkDaemon:
    """A process of the standalone cluster: the master, or one worker.

    Attributes
    ----------
    name : str
        What messages call it.
    folder : Path
        Holds its log and its work.
    """

    def __init__(
        self, name: str, folder: Path, arguments: Sequence[str], environment: Mapping[str, str], *, is_temporary: bool
    ) -> None:
        self.name = name
        self.folder = folder
        self.environment = environment
        self._arguments = arguments
        self._is_temporary = is_temporary
        self.process: SupervisedProcess | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; returns before it is ready."""
        if self.is_running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = SupervisedProcess.start(
            [str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class"), *self._arguments],
            name=self.name,
            log_path=self.folder / "daemon.log",
            env=self.environment,
            cwd=self.folder,
            remove_when_orphaned=self.folder if self._is_temporary else None,
        )

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Ask the process to end, as when its machine is shut down; it is gone on return."""
        if self.process is not None:
            self.process.stop(grace_s)
        self.process = None

    def kill(self) -> None:
        """End the process and its executors at once (SIGKILL), as when its machine is lost."""
        if self.process is not None:
            self.process.kill()
        self.process = None

    def check_alive(self) -> None:
        """Raise `DaemonDied` with the end of its log when it ended by itself."""
        code = self.process.poll() if self.process is not None else None
        if code is not None:
            raise DaemonDied(
                f"{self.name} ended by itself with exit code {code}: the end of its log, from {self.folder}, says why.",
                self.log_tail(),
            )

    def log_tail(self, line_count: int = 30) -> str:
        """Return the end of its log."""
        return self.process.log_tail(line_count) if self.process is not None else ""


class LocalWorker(SparkDaemon):
    """One worker; `rack` is what its executors find in ``KAFKA_CLIENT_RACK`` (None: they find nothing)."""

    @property
    def rack(self) -> str | None:
        """The rack of its executors."""
        return self.environment.get(RACK_VARIABLE)


class LocalSpark:
    """A master and one worker per rack, as processes of this machine; use it as a context manager.

    Parameters
    ----------
    racks
        The rack of each worker. None is a worker that has none.
    cores, memory
        What each worker offers to executors.
    environment
        Variables for every worker and so for its executors, besides this process's own.
    rack_environment
        The same for the workers of one rack.
    data_folder
        Where logs and work folders stay; None means a temporary folder that is removed by `stop`.
    """

    def __init__(
        self,
        racks: Sequence[str | None] = ("az-a", "az-b", "az-c"),
        *,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
        rack_environment: Mapping[str, Mapping[str, str]] | None = None,
        data_folder: Path | None = None,
    ) -> None:
        self.racks = tuple(racks)
        self.cores = cores
        self.memory = memory
        self.workers: tuple[LocalWorker, ...] = ()
        self.master: SparkDaemon | None = None
        self.master_url = ""
        self.folder: Path | None = None
        self._environment = dict(environment or {})
        self._rack_environment = dict(rack_environment or {})
        self._wanted_folder = data_folder
        self._state_url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def driver_conf(self) -> dict[str, str]:
        """Spark settings of a driver on this machine that uses the cluster; `driver_environment` belongs to it."""
        return {
            "spark.master": self.master_url,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.extraJavaOptions": " ".join(QUICK_START_OPTIONS),
            "spark.executor.memory": self.memory,
            "spark.executor.extraJavaOptions": " ".join(QUICK_START_OPTIONS),
        }

    @property
    def driver_environment(self) -> dict[str, str]:
        """Variables of such a driver: Python workers are to be of this very Python, and of this virtual environment."""
        return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}

    def start(self) -> None:
        """Start the master and the workers and block until the master lists every worker as alive.

        Raises
        ------
        LocalClusterError
            One sentence that says what to do, with the end of the log that shows why. Nothing is left running.
        """
        if self.master is not None:
            return
        java = find_java()
        folder = (self._wanted_folder or Path(tempfile.mkdtemp(prefix="kafka-follower-spark-"))).resolve()
        self.folder = folder
        with ExitStack() as undo:
            undo.callback(self.stop)
            start_on_free_ports(lambda: self._start_daemons(folder, java), lambda: self._end_daemons(is_urgent=True))
            undo.pop_all()

    def stop(self) -> None:
        """End everything, executors and their Python workers included; a temporary folder is removed."""
        self._end_daemons(is_urgent=False)
        self.master, self.workers, self.master_url = None, (), ""
        if self.folder is not None:
            for left in wait_nothing_left(self.folder, ORPHAN_WAIT_S):
                with suppress(ProcessLookupError):
                    os.kill(left.pid, signal.SIGKILL)
            if self._wanted_folder is None:
                shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def alive_worker_count(self) -> int:
        """Return how many workers the master lists as alive; 0 while it does not answer."""
        return int(self.state().get("aliveworkers", 0))

    def state(self) -> dict[str, Any]:
        """Return the master's own JSON report; empty while it does not answer."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(self._state_url, timeout=5.0) as answer:
                report: dict[str, Any] = json.load(answer)
        except (URLError, TimeoutError, ConnectionError, json.JSONDecodeError):
            return {}  # no JSON: the master's pages come up one by one, and at first its front page answers for all
        return report

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Block until the master lists every running worker as alive."""
        deadline = time.monotonic() + timeout_s
        while True:
            for daemon in self._daemons():
                daemon.check_alive()
            expected = sum(worker.is_running for worker in self.workers)
            if self.alive_worker_count() == expected:
                return
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"The Spark master does not list {expected} workers after {timeout_s:g} s: "
                    "free the machine of other load and try again.",
                    "\n".join(f"[{daemon.name}]\n{daemon.log_tail(10)}" for daemon in self._daemons()),
                )
            time.sleep(POLL_S)

    def _daemons(self) -> tuple[SparkDaemon, ...]:
        return (*((self.master,) if self.master else ()), *self.workers)

    def _start_daemons(self, folder: Path, java: JavaHome) -> None:
        port, ui_port = free_ports(2)
        self.master_url = f"spark://{HOST}:{port}"
        self._state_url = f"http://{HOST}:{ui_port}/json/"
        environment = self._daemon_environment(folder, java)
        is_temporary = self._wanted_folder is None
        self.master = SparkDaemon(
            "The Spark master",
            folder / "master",
            (
                "org.apache.spark.deploy.master.Master",
                "--host",
                HOST,
                "--port",
                str(port),
                "--webui-port",
                str(ui_port),
            ),
            environment | {"SPARK_DAEMON_JAVA_OPTS": f"{DAEMON_JAVA_OPTIONS} {MASTER_JAVA_OPTIONS}"},
            is_temporary=is_temporary,
        )
        self.workers = tuple(
            self._make_worker(number, rack, folder, environment) for number, rack in enumerate(self.racks, start=1)
        )
        self.master.start()
        self._wait_master_answers(self.master)  # a worker that finds no master waits several seconds before it retries
        for worker in self.workers:
            worker.start()
        self.wait_ready()

    def _wait_master_answers(self, master: SparkDaemon) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self.state().get("status") != "ALIVE":
            master.check_alive()
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"{master.name} does not answer after {READY_TIMEOUT_S:g} s: free the machine of other load.",
                    master.log_tail(),
                )
            time.sleep(POLL_S)

    def _make_worker(self, number: int, rack: str | None, folder: Path, environment: Mapping[str, str]) -> LocalWorker:
        own_folder = folder / f"worker-{number}"
        own = {**environment, "SPARK_LOCAL_DIRS": str(own_folder / "local"), **self._environment}
        own.pop(RACK_VARIABLE, None)
        if rack is not None:
            own[RACK_VARIABLE] = rack
            own |= self._rack_environment.get(rack, {})
        return LocalWorker(
            f"Spark worker {number} ({rack or 'no rack'})",
            own_folder,
            (
                *("org.apache.spark.deploy.worker.Worker", "--host", HOST, "--webui-port", "0"),
                *("--cores", str(self.cores), "--memory", self.memory),
                *("--work-dir", str(own_folder / "work"), self.master_url),
            ),
            own,
            is_temporary=self._wanted_folder is None,
        )

    def _daemon_environment(self, folder: Path, java: JavaHome) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "_SPARK"))}
        return inherited | {
            "JAVA_HOME": str(java.folder),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(
                folder / "master" / "conf"
            ),  # does not exist: a person's own Spark settings are not for this cluster
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": DAEMON_JAVA_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
            CLUSTER_MARKER: str(folder),
        }

    def _end_daemons(self, *, is_urgent: bool) -> None:
        daemons = self._daemons()
        for daemon in reversed(daemons):
            if daemon.process is not None:
                daemon.process.send_signal(signal.SIGKILL if is_urgent else signal.SIGTERM)
        for daemon in reversed(daemons):
            daemon.stop()
