"""A stand-in for an executor's JVM: a shell that runs under the name ``java`` and starts workers when it is told to.

How a worker finds it, joins, and starts the exporter is what happens in Spark.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from connector.metrics.endpoint import Endpoint, list_endpoints
from tests.waiting import wait_for

PROLOGUE = """
import dataclasses, json, os, sys
from connector.metrics.endpoint import EndpointSettings, executor_recorder
from connector.metrics import catalog

def join(rack="az-a", **changes):
    settings = EndpointSettings.from_environment(os.environ)
    settings = dataclasses.replace(settings, **{"restart_delay_s": 0.0, **changes})
    return executor_recorder(rack=rack, source="option", settings=settings)

def count(recorder, amount):
    recorder.count(catalog.FETCH_BYTES, amount, "orders", "az-a", "local")

def say(**facts):
    with open(sys.argv[1] + ".new", "w") as file:
        json.dump(facts, file)
    os.replace(sys.argv[1] + ".new", sys.argv[1])

def hold():
    open(sys.argv[2]).read()  # a FIFO: blocks until the test lets go
"""


class Worker:
    """A process that the stand-in started."""

    def __init__(self, folder: Path, number: int) -> None:
        self.answer_path = folder / f"answer-{number}"
        self.hold_path = folder / f"hold-{number}"
        self.log_path = folder / f"log-{number}"
        os.mkfifo(self.hold_path)

    def answer(self) -> dict[str, object]:
        """Wait for what the worker says."""
        wait_for(self.answer_path.exists, "a worker's answer", explain=self.log_path.read_text)
        facts: dict[str, object] = json.loads(self.answer_path.read_text())
        return facts

    @property
    def pid(self) -> int:
        """The worker's id, as it said."""
        pid = self.answer()["pid"]
        assert isinstance(pid, int)
        return pid

    def let_go(self) -> None:
        """End a worker that holds, and wait for its end."""
        self.hold_path.write_text("")
        self.wait_end()

    def kill(self) -> None:
        """End a worker at once, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_end()

    def wait_end(self) -> None:
        """Wait until the worker is gone."""
        wait_for(lambda: not is_alive(self.pid), "the worker's end")


class Executor:
    """The stand-in for an executor's JVM."""

    def __init__(self, folder: Path, root: Path, **environ: str) -> None:
        self.folder = folder
        self.root = root
        self.worker_count = 0
        folder.mkdir()
        (folder / "java").symlink_to("/bin/sh")
        self.process = subprocess.Popen(
            [folder / "java", "-c", 'while read -r line; do eval "exec $line" & done'],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "KAFKA_FOLLOWER_METRICS_DIR": str(root), "PYTHONPATH": os.getcwd(), **environ},
        )

    def start_worker(self, script: str) -> Worker:
        """Run a script as a worker of this executor."""
        self.worker_count += 1
        worker = Worker(self.folder, self.worker_count)
        script_path = self.folder / f"worker-{self.worker_count}.py"
        script_path.write_text(PROLOGUE + textwrap.dedent(script))
        worker.log_path.touch()
        words = shlex.join(map(str, [sys.executable, script_path, worker.answer_path, worker.hold_path]))
        assert self.process.stdin is not None
        self.process.stdin.write(f"{words} >{shlex.quote(str(worker.log_path))} 2>&1\n")
        self.process.stdin.flush()
        return worker

    def run_worker(self, script: str) -> dict[str, object]:
        """Run a script as a worker to its end; return what it said."""
        worker = self.start_worker(script + "\nsay(pid=os.getpid())" if "say(" not in script else script)
        worker.wait_end()
        return worker.answer()

    def endpoint(self) -> Endpoint:
        """Wait until this executor's metrics are served."""

        def look() -> Endpoint | None:
            return next((e for e in list_endpoints(self.root) if e.executor_pid == self.process.pid), None)

        return wait_for(look, "an endpoint")

    def scrape(self) -> dict[str, float]:
        """Return the value of each metric, summed over its series."""
        values: dict[str, float] = {}
        with urllib.request.urlopen(self.endpoint().url, timeout=10) as answer:
            for family in text_string_to_metric_families(answer.read().decode()):
                for sample in family.samples:
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
        return values

    def kill(self) -> None:
        """End it as the out-of-memory killer would."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it and its workers, those that still run."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def is_alive(pid: int) -> bool:
    """Return whether a process runs (one that waits to be reaped does not).

    A killed process holds its locks until its last thread is gone, and its first may be reported dead before that.
    """
    try:
        is_zombie = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
        return not is_zombie or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def exporter_pids(root: Path) -> list[int]:
    """Return the exporters that serve a folder under `root`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdecimal() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        is_exporter = "connector.metrics.exporter" in words and words[0] != "/bin/sh"
        if is_exporter and any(word.startswith(f"{root}/") for word in words) and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found
