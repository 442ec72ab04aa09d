"""The Parquet sink and the manifest reader, against Spark's own reader."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_app.manifest import committed_files
from streaming_app.settings import SinkConfig
from streaming_app.sinks import build_sink

pytestmark = pytest.mark.spark

BATCH_COUNT = 8


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory) -> Path:
    """A table of several micro-batches, with a compacted manifest and a file that never committed."""
    folder = tmp_path_factory.mktemp("with a space")
    for number in range(BATCH_COUNT):
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{number}.txt").write_text(f"{number} a\n{number} b/c\n", encoding="ascii")
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    rows = lines.selectExpr("split(value, ' ')[0] as number", "split(value, ' ')[1] as kind")
    config = SinkConfig(format="parquet", path=str(folder / "out"), checkpoint="", partition_by=("kind",))
    writer = build_sink(config).writer(rows).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    left_over = next((folder / "out").rglob("part-*.parquet"))
    left_over.with_name("part-of-a-failed-attempt.parquet").write_bytes(left_over.read_bytes())
    return Path(folder, "out")


def test_the_manifest_names_the_files_that_spark_reads(spark, written):
    spark_files = {
        Path(row["path"]).name
        for row in spark.read.parquet(str(written)).selectExpr("_metadata.file_name as path").distinct().collect()
    }
    found = committed_files(written)
    assert {path.name for path in found} == spark_files
    assert len(found) == len(spark_files) == 2 * BATCH_COUNT
    assert any(path.name.endswith(".compact") for path in (written / "_spark_metadata").iterdir())


def test_the_files_hold_each_row_once(written):
    rows = sorted(
        value for path in committed_files(written) for value in pq.ParquetFile(path).read()["number"].to_pylist()
    )
    assert rows == sorted(2 * [str(number) for number in range(BATCH_COUNT)])
