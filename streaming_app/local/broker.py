"""One local broker: a Kafka process with its own folder, ports and rack, which tests may hurt."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from streaming_app.local.broker_config import BrokerAddress, broker_properties, properties_text
from streaming_app.local.cluster_view import ClusterViewer
from streaming_app.local.errors import LocalClusterError, ProcessDied
from streaming_app.local.java import QUICK_START_OPTIONS, JavaHome
from streaming_app.local.ports import HOST
from streaming_app.local.supervise import SupervisedProcess, size_of, telling_tail_of

__all__ = ["BrokerDied", "LocalBroker"]

READY_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.05
JVM_OPTIONS: Final = (
    *QUICK_START_OPTIONS,
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)
LOG_CONFIGURATION: Final = Path(__file__).with_name("broker-log4j2.xml")


class BrokerDied(ProcessDied):
    """A broker's process ended although nobody asked it to, or nobody started it."""


class LocalBroker:
    """One of the brokers of a `LocalKafka`, which makes it; each is a controller too.

    Attributes
    ----------
    node_id, rack, host, port
        What it advertises. They stay the same however often it is started again.
    folder : Path
        Holds its data (``data/``), ``server.properties`` and its logs.
    environment : Mapping[str, str]
        What its environment holds besides ours.
    process : SupervisedProcess or None
        The running process; None before the first start and after `stop` or `kill`.
    """

    def __init__(
        self,
        address: BrokerAddress,
        folder: Path,
        java: JavaHome,
        class_path: str,
        *,
        jvm_options: Sequence[str],
        environment: Mapping[str, str],
        request_log: bool,
        is_folder_temporary: bool,
        peers: Callable[[], Sequence[LocalBroker]],
    ) -> None:
        self.address = address
        self.node_id = address.node_id
        self.rack = address.rack
        self.host = HOST
        self.port = address.port
        self.folder = folder
        self.process: SupervisedProcess | None = None
        self._log_starts: dict[Path, int] = {}
        self.is_paused = False
        self._java = java
        self._class_path = class_path
        self.environment = environment
        self._jvm_options = tuple(jvm_options)
        self._request_log = request_log
        self._is_folder_temporary = is_folder_temporary
        self._peers = peers

    @property
    def data_folder(self) -> Path:
        """Folder of its log segments (Kafka's ``log.dirs``)."""
        return self.folder / "data"

    @property
    def properties_path(self) -> Path:
        """File of its configuration."""
        return self.folder / "server.properties"

    @property
    def request_log_path(self) -> Path:
        """File of the broker's own request logger; absent unless the cluster was made with ``request_log=True``."""
        return self.folder / "requests.log"

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self.process is not None and self.process.poll() is None

    def write_properties(
        self, quorum: Sequence[BrokerAddress], *, selector: bool, overrides: Mapping[str, str]
    ) -> None:
        """Write ``server.properties``."""
        properties = broker_properties(self.address, quorum, self.data_folder, selector=selector, overrides=overrides)
        self.properties_path.write_text(properties_text(properties), encoding="ascii")

    def java_command(self, main_class: str, *arguments: str, jvm_options: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs one of Kafka's programs with this broker's logging."""
        return [
            self._java.executable,
            *JVM_OPTIONS,
            *jvm_options,
            f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
            f"-Dkafka.follower.log.folder={self.folder}",
            f"-Dkafka.follower.request.level={'DEBUG' if self._request_log else 'OFF'}",
            *("-cp", self._class_path, main_class, *arguments),
        ]

    def start(self) -> None:
        """Start the process, on the same ports and data as before; returns before it is ready (`wait_ready`)."""
        if self.is_running:
            return
        self._log_starts = {path: size_of(path) for path in (self.folder / "broker.log", self.folder / "console.log")}
        self.process = SupervisedProcess.start(
            self.java_command("kafka.Kafka", str(self.properties_path), jvm_options=self._jvm_options),
            name=f"Broker {self.node_id} ({self.rack})",
            log_path=self.folder / "console.log",
            env={**os.environ, **self.environment},
            remove_when_orphaned=self.folder if self._is_folder_temporary else None,
        )
        self.is_paused = False

    def stop(self, grace_s: float = 20.0) -> None:
        """Shut down in order: leadership moves away first. The process is gone on return."""
        if self.process is not None:
            self.process.stop(grace_s)
        self.process, self.is_paused = None, False

    def restart(self) -> None:
        """Shut down in order and start again, on the same ports and data; it is ready on return."""
        self.stop()
        self.start()
        self.wait_ready()

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash does. It is gone on return, but the others notice later."""
        if self.process is not None:
            self.process.kill()
        self.process, self.is_paused = None, False

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, nothing is answered, as behind a broken network path."""
        self.running_process().pause()
        self.is_paused = True

    def resume(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self.running_process().resume()
        self.is_paused = False

    def running_process(self) -> SupervisedProcess:
        """Return the process; `BrokerDied` when there is none."""
        self.check_alive()
        if self.process is None:
            raise BrokerDied(f"Broker {self.node_id} ({self.rack}) is not running: start it first.")
        return self.process

    def check_alive(self) -> None:
        """Raise `BrokerDied` with the end of its log when the process ended by itself."""
        code = self.process.poll() if self.process is not None else None
        if code is not None:
            raise BrokerDied(
                f"Broker {self.node_id} ({self.rack}) ended by itself with exit code {code}: "
                f"the end of its log, from {self.folder}, says why.",
                self.log_tail(),
            )

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Block until it serves clients and every other broker that can answer knows it as alive.

        Raises
        ------
        BrokerDied
            Its process ended meanwhile.
        LocalClusterError
            It was not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        self.wait_port_open(deadline)
        for observer in (self, *(peer for peer in self._peers() if peer is not self)):
            self.wait_seen_by(observer, deadline)

    def wait_port_open(self, deadline: float) -> None:
        """Block until something accepts connections on its port."""
        while True:
            self.running_process()
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            self.check_deadline(deadline, "nothing listens on its port")
            time.sleep(POLL_S)

    def wait_seen_by(self, observer: LocalBroker, deadline: float) -> None:
        """Block until `observer` lists this broker as alive; an observer that is down or paused is not asked."""
        viewer = ClusterViewer(f"{observer.host}:{observer.port}")
        while observer.is_running and not observer.is_paused:
            self.running_process()
            if self.node_id in viewer.alive_node_ids(timeout_s=2.0):
                return
            self.check_deadline(deadline, f"broker {observer.node_id} does not list it as alive")
            time.sleep(POLL_S)
        if observer is self:
            self.running_process()

    def check_deadline(self, deadline: float, state: str) -> None:
        """Raise `LocalClusterError` when the time is over."""
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"Broker {self.node_id} ({self.rack}) is not ready in time, {state}: "
                "most brokers must run (start the others too) and the machine must not be overloaded.",
                self.log_tail(),
            )

    def log_tail(self, line_count: int = 30) -> str:
        """Return the end of its log since its last start, from the first error on, with what the JVM itself printed."""
        parts = (telling_tail_of(path, line_count, start) for path, start in self._log_starts.items())
        return "\n".join(part for part in parts if part)
