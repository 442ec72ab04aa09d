"""Start a job as a user would, with spark-submit or with Python, and wait for what it does."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streaming_app.local.artifacts import spark_home
from streaming_app.local.java import find_java
from streaming_app.local.supervise import SupervisedProcess

PROJECT = Path(__file__).resolve().parents[2]
SPARK_SUBMIT = str(spark_home() / "bin" / "spark-submit")
QUIET_SPARK = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=512m")


def job_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a job: the packages importable for it and for its workers."""
    return {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(find_java().folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **(changes or {}),
    }


def spark_submit(*arguments: str | Path) -> list[str]:
    return [SPARK_SUBMIT, *QUIET_SPARK, *map(str, arguments)]


def start(command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None) -> SupervisedProcess:
    return SupervisedProcess.start(
        command, name=log_path.stem, log_path=log_path, env=job_environment(environment), cwd=PROJECT
    )


def wait_until(condition: Callable[[], bool], process: SupervisedProcess, timeout_s: float = 90) -> None:
    """Block until `condition` holds; fail with the job's log when it never does or when the job ends first."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        code = process.poll()
        assert code is None, f"the job ended with exit code {code}:\n{process.log_tail(60)}"
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s in vain:\n{process.log_tail(60)}"
        time.sleep(0.05)
