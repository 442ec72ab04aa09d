"""Real jobs that are asked to end while a micro-batch runs; `held_job` makes one last as long as a test wants."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_app.local.supervise import SupervisedProcess
from streaming_app.manifest import committed_files
from tests.app.launching import PROJECT, spark_submit, start, wait_for_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

JOB = PROJECT / "tests" / "app" / "held_job.py"
FILE_COUNT = 4
ROWS_PER_FILE = 100


class HeldJob:
    """A job in a folder of its own, run once or several times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[SupervisedProcess] = []
        (folder / "input").mkdir()
        for number in range(FILE_COUNT):
            path = folder / "input" / f"f{number}.txt"
            path.write_text("".join(f"{row}\n" for row in rows_of(number)), encoding="ascii")
            os.utime(path, (1_000_000 + number, 1_000_000 + number))  # the order in which Spark takes files

    def run(self, command: list[str]) -> SupervisedProcess:
        process = start(command, self.folder / f"run-{len(self.processes)}.log")
        self.processes.append(process)
        return process

    def release(self, *numbers: int) -> None:
        for number in numbers:
            (self.folder / f"release-f{number}").touch()

    def has_started(self, number: int) -> bool:
        return (self.folder / f"started-f{number}").exists()

    def committed(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / "checkpoint" / "commits").glob("[0-9]*"))

    def rows(self) -> Counter[int]:
        tables = [pq.ParquetFile(file).read(columns=["value"]) for file in committed_files(self.folder / "output")]
        return Counter(int(row) for table in tables for row in table["value"].to_pylist())

    def log(self) -> str:
        return self.processes[-1].log_path.read_text(encoding="utf-8", errors="replace")

    def finish(self) -> None:
        """Run it again until its input is read, and check that each row is there once."""
        self.release(*range(FILE_COUNT))
        process = self.run(spark_submit(JOB, self.folder, "--available-now"))
        assert process.wait(120) == 0, process.log_tail(60)
        assert self.rows() == Counter(row for number in range(FILE_COUNT) for row in rows_of(number))


def rows_of(number: int) -> range:
    return range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)


@pytest.fixture
def job(tmp_path) -> Iterator[HeldJob]:
    held = HeldJob(tmp_path)
    yield held
    for process in held.processes:
        process.kill()


def signal_jvm(process: SupervisedProcess) -> None:
    """As YARN, Kubernetes and a service manager do: spark-submit's process has become the JVM."""
    os.kill(process.pid, signal.SIGTERM)


def press_ctrl_c(process: SupervisedProcess) -> None:
    """A terminal sends SIGINT to the JVM and to its child Python."""
    process.send_signal(signal.SIGINT)


def signal_python(process: SupervisedProcess) -> None:
    os.kill(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("launcher", "ask", "exit_code"),
    [
        ("spark-submit", signal_jvm, 128 + signal.SIGTERM),
        ("spark-submit", press_ctrl_c, 128 + signal.SIGINT),
        ("python", signal_python, 0),
    ],
    ids=["spark-submit-SIGTERM", "spark-submit-ctrl-c", "python-SIGTERM"],
)
def test_the_running_batch_commits_and_the_next_run_goes_on(job, launcher, ask, exit_code):
    command = [sys.executable, str(JOB), str(job.folder)] if launcher == "python" else spark_submit(JOB, job.folder)
    job.release(0)
    process = job.run(command)
    wait_for_job(lambda: job.has_started(1), "the second micro-batch", process)
    assert job.committed() == [0]

    ask(process)
    wait_for_job(lambda: "the running micro-batch has 90 s to commit" in job.log(), "word of the request", process)
    assert job.committed() == [0]
    job.release(1)

    assert process.wait(60) == exit_code, process.log_tail(60)
    assert job.committed() == [0, 1]
    assert job.rows() == Counter([*rows_of(0), *rows_of(1)])
    assert "The query stopped between two micro-batches" in job.log()
    assert "ShutdownHook '" not in job.log(), "Hadoop tells so of a hook that failed or took too long"
    job.finish()
    # Stopped while it planned the third micro-batch, Spark's file source gives it the fourth file too.
    assert job.committed()[:3] == [0, 1, 2]


def test_a_batch_that_takes_too_long_is_given_up_and_read_again(job):
    job.release(0)
    process = job.run(spark_submit(JOB, job.folder, "--timeout-s", "2"))
    wait_for_job(lambda: job.has_started(1), "the second micro-batch", process)
    signal_jvm(process)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert job.committed() == [0]
    assert "did not commit in time and was given up" in job.log()
    job.finish()


def test_a_query_that_ends_by_itself_leaves_no_hook_behind(job):
    job.finish()
    assert "ShutdownHook '" not in job.log(), "Hadoop tells so of a hook that failed or took too long"
    assert "micro-batch" not in [line for line in job.log().splitlines() if "streaming_app.lifecycle" in line]


def test_a_query_that_fails_ends_the_job_with_its_error(job):
    job.release(0)
    (job.folder / "fail-f1").touch()
    process = job.run(spark_submit(JOB, job.folder))
    assert process.wait(90) == 1
    assert "StreamingQueryException" in job.log()
    assert "f1 is to fail" in job.log()
    assert "ShutdownHook '" not in job.log(), "Hadoop tells so of a hook that failed or took too long"
    assert job.committed() == [0]
