"""One JVM serves all Spark tests of a run; it is started with the jars of Spark's own kafka source, the oracle."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.quick_spark import QUICK_ARGUMENTS
from tests.requirements import require


@pytest.fixture(scope="session", autouse=True)
def jvm_arguments() -> None:
    """Fix what the JVM is started with, before any test starts it."""
    from streaming_app.local import artifacts, java
    from streaming_app.local.errors import LocalClusterError

    try:
        java.find_java()
        jars = artifacts.oracle_jars()
    except LocalClusterError as error:
        require(False, str(error))
        raise
    arguments = ("--driver-memory", "1g", *QUICK_ARGUMENTS, "--jars", ",".join(map(str, jars)), "pyspark-shell")
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(arguments)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


@pytest.fixture(scope="module")
def spark(jvm_arguments: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with our format registered, on two local cores."""
    from connector.spark import KafkaFollowerDataSource

    folder: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(KafkaFollowerDataSource)
    yield session
    session.stop()
