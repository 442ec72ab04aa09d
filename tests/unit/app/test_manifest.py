import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from streaming_app.manifest import ManifestError, committed_files


def entry(path: str, action: str = "add") -> str:
    return json.dumps({"path": path, "size": 1, "isDir": False, "modificationTime": 1, "action": action})


def write(folder: Path, name: str, paths: Iterable[str], version: str = "v1") -> None:
    manifest = folder / "_spark_metadata"
    manifest.mkdir(exist_ok=True)
    (manifest / name).write_text("\n".join([version, *map(entry, paths)]), encoding="utf-8")


def names(folder: Path) -> list[str]:
    return [str(path) for path in committed_files(folder)]


def test_batches_are_put_together_in_order(tmp_path):
    for batch_id in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9):
        write(tmp_path, str(batch_id), [f"file:///d/{batch_id}.parquet"])
    assert names(tmp_path) == [f"/d/{batch_id}.parquet" for batch_id in range(11)]


def test_a_batch_may_add_nothing(tmp_path):
    write(tmp_path, "0", [])
    assert names(tmp_path) == []


def test_the_latest_compacted_file_stands_for_all_before_it(tmp_path):
    write(tmp_path, "1", ["file:///d/1"])
    write(tmp_path, "2.compact", ["file:///d/0", "file:///d/1", "file:///d/2"])
    write(tmp_path, "4", ["file:///d/4"])
    write(tmp_path, "5.compact", [f"file:///d/{number}" for number in range(6)])
    write(tmp_path, "6", ["file:///d/6"])
    assert names(tmp_path) == [f"/d/{number}" for number in range(7)]


def test_checksums_and_temporary_files_are_passed_over(tmp_path):
    write(tmp_path, "0", ["file:///d/0"])
    for name in (".0.crc", ".1.5e7c.tmp", "1.tmp"):
        (tmp_path / "_spark_metadata" / name).write_bytes(b"\x00")
    assert names(tmp_path) == ["/d/0"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///d/a%20b/day=2026-01-05/x.parquet", "/d/a b/day=2026-01-05/x.parquet"),
        ("file:/d/x", "/d/x"),
        ("/d/x", "/d/x"),
        ("file:///d/50%25=a%2Fb/x", "/d/50%=a/b/x"),
    ],
)
def test_urls_become_paths(tmp_path, url, path):
    write(tmp_path, "0", [url])
    assert names(tmp_path) == [path]


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(ManifestError, match="no micro-batch has committed here"):
        committed_files(tmp_path)


@pytest.mark.parametrize("present", [("0", "2"), ("1",), ("2.compact", "4")])
def test_a_gap_is_refused_and_not_read_over(tmp_path, present):
    for name in present:
        write(tmp_path, name, [])
    with pytest.raises(ManifestError, match=r"the file of batch \d is missing"):
        committed_files(tmp_path)


def test_another_version_is_refused(tmp_path):
    write(tmp_path, "0", [], version="v2")
    with pytest.raises(ManifestError, match="its version is 'v2'"):
        committed_files(tmp_path)


def test_another_file_system_is_refused(tmp_path):
    write(tmp_path, "0", ["s3a://bucket/x"])
    with pytest.raises(ManifestError, match="another file system"):
        committed_files(tmp_path)


def test_an_action_that_is_not_known_is_refused(tmp_path):
    manifest = tmp_path / "_spark_metadata"
    manifest.mkdir()
    (manifest / "0").write_text("v1\n" + entry("file:///d/0", action="delete"), encoding="utf-8")
    with pytest.raises(ManifestError, match="'delete'"):
        committed_files(tmp_path)
