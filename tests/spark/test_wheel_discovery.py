"""With the wheel installed, Spark knows the format without a call to register."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streaming_app.local.kafka import LocalKafka
from tests.quick_spark import QUICK_ARGUMENTS
from tests.requirements import require

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
JOB = """
import sys
from pyspark.sql import SparkSession
import connector
assert connector.__file__.startswith(sys.argv[1]), connector.__file__
spark = SparkSession.builder.master("local[1]").getOrCreate()
for session in (spark, spark.newSession()):
    rows = session.read.format("kafka_follower").option("kafka.bootstrap.servers", sys.argv[2])
    print("rows", rows.option("subscribe", sys.argv[3]).load().count())
"""


@pytest.fixture(scope="module")
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout and installed into a folder of its own."""
    uv = Path(sys.executable).with_name("uv")
    require(uv.exists(), "uv is not in the virtual environment: run make setup")
    folder = tmp_path_factory.mktemp("wheel")
    for left_over in (ROOT / "build").glob("lib*"):  # setuptools would pack modules that are gone
        shutil.rmtree(left_over)
    for command in (
        [uv, "build", "--wheel", "--no-build-isolation", "--quiet", "--python", sys.executable, "--out-dir", folder],
        [uv, "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder / "installed"],
    ):
        wheels = list(folder.glob("*.whl"))
        subprocess.run([*map(str, command), *map(str, wheels)], cwd=ROOT, check=True, timeout=300)
    return folder / "installed"


def test_the_wheel_holds_the_kernel_its_types_and_the_discovery_module_and_no_tests(installed_wheel: Path) -> None:
    found = {path.relative_to(installed_wheel).as_posix() for path in installed_wheel.rglob("*") if path.is_file()}
    assert any(name.startswith("connector/records/kernels.") and name.endswith(".so") for name in found)
    assert {"connector/records/kernels.pyi", "connector/py.typed", "pyspark_kafka_follower/__init__.py"} <= found
    assert not [name for name in found if name.startswith(("tests/", "conf/"))]


def test_spark_finds_the_format_by_itself_in_every_session(
    installed_wheel: Path, kafka_cluster: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for number in range(25):
        producer.produce(name, str(number))
    assert producer.flush(30) == 0
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*QUICK_ARGUMENTS, "pyspark-shell"]),
        "PYTHONPATH": str(installed_wheel),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    finished = subprocess.run(
        [sys.executable, "-c", JOB, str(installed_wheel), kafka_cluster.bootstrap_servers, name],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert finished.stdout.split("\n")[:2] == ["rows 25", "rows 25"], finished.stderr[-3000:]
