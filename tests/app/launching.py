"""Start a job as a user would, with spark-submit or with Python, and wait for what it does."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streaming_app.local.artifacts import spark_home
from streaming_app.local.java import find_java
from streaming_app.local.supervise import SupervisedProcess
from tests.quick_spark import QUICK_ARGUMENTS
from tests.waiting import wait_for

PROJECT = Path(__file__).resolve().parents[2]
SPARK_SUBMIT = str(spark_home() / "bin" / "spark-submit")
SMALL_SPARK = ("--master", "local[2]", "--driver-memory", "512m")


def job_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a job: the packages importable for it and for its workers."""
    return {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*QUICK_ARGUMENTS, "pyspark-shell"]),  # where Python starts the JVM
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(find_java().folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **(changes or {}),
    }


def spark_submit(*arguments: str | Path) -> list[str]:
    return [SPARK_SUBMIT, *SMALL_SPARK, *QUICK_ARGUMENTS, *map(str, arguments)]


def start(command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None) -> SupervisedProcess:
    return SupervisedProcess.start(
        command, name=log_path.stem, log_path=log_path, env=job_environment(environment), cwd=PROJECT
    )


def wait_for_job(look: Callable[[], bool], what: str, process: SupervisedProcess, timeout_s: float = 90) -> None:
    """Block until `look` is true; fail with the job's log when it never is or when the job ends first."""

    def look_while_it_runs() -> bool:
        code = process.poll()
        is_true = look()
        assert is_true or code is None, f"the job ended with exit code {code}:\n{process.log_tail(60)}"
        return is_true

    wait_for(look_while_it_runs, what, timeout_s, poll_s=0.05, explain=lambda: process.log_tail(60))
