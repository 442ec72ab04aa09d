"""Py4J hands every call on a proxy to Python, those of `java.lang.Object` too."""

import pytest

from streaming_app.lifecycle import _Callback

pytestmark = pytest.mark.spark


def test_java_can_run_print_and_compare_a_callback(spark):
    jvm = spark.sparkContext._gateway.jvm
    runs: list[int] = []
    callback = _Callback(lambda: runs.append(1))
    other = _Callback(lambda: runs.append(2))
    java_set = jvm.java.util.HashSet()
    assert [java_set.add(each) for each in (callback, callback, other)] == [True, False, True]
    assert jvm.java.lang.String.valueOf(callback) == "graceful stop of the streaming query"
    jvm.java.lang.Thread(callback).run()
    assert runs == [1]
