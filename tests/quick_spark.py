"""Spark settings of tests: JVMs that start in half the time, since most do little else."""

from __future__ import annotations

from typing import Final

from streaming_app.local.java import QUICK_START_OPTIONS

QUICK_ARGUMENTS: Final = (
    *("--conf", "spark.ui.enabled=false"),
    *("--conf", f"spark.driver.extraJavaOptions={' '.join(QUICK_START_OPTIONS)}"),
)
"""For spark-submit, and for the JVM that pyspark starts (``PYSPARK_SUBMIT_ARGS``), with executors in it."""
