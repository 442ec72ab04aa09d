"""Files of values: readable by prometheus-client, continued by the next writer, without holes, and safe when full."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from connector.metrics.value_file import ValueFile, read_values, series_key


def _as_prometheus_reads(path: Path) -> dict[str, tuple[float, float]]:
    entries = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]  # it has no types
    return {key: (value, time_s) for key, value, time_s, _ in entries}


def test_prometheus_client_reads_what_is_written(tmp_path):
    path = tmp_path / "counter_0.db"
    file = ValueFile(path)
    assert file.add("a") == 0.0
    file.add("ü" * 40)
    file.write("a", 7.5, 0.0)
    file.write("ü" * 40, -1.0, 12.25)
    assert _as_prometheus_reads(path) == {"a": (7.5, 0.0), "ü" * 40: (-1.0, 12.25)}
    assert {key: (value, time_s) for key, value, time_s in read_values(path)} == _as_prometheus_reads(path)
    file.close()


def test_values_are_seen_while_the_writer_lives(tmp_path):
    file = ValueFile(tmp_path / "counter_0.db")
    file.add("a")
    for value in (1.0, 2.0):
        file.write("a", value, 0.0)
        assert list(read_values(tmp_path / "counter_0.db")) == [("a", value, 0.0)]
    file.close()


def test_next_writer_continues(tmp_path):
    path = tmp_path / "counter_0.db"
    first = ValueFile(path)
    first.add("a")
    first.write("a", 41.0, 0.0)
    first.close()
    second = ValueFile(path)
    assert second.add("a") == 41.0
    second.close()
    assert path.stat().st_size == 1 << 16


def test_key_is_that_of_prometheus_client():
    arguments = ("family", "family_total", ("b", "a"), ("x", "ÿ"), "Help.")
    assert series_key(*arguments) == mmap_key("family", "family_total", ["b", "a"], ["x", "ÿ"], "Help.")


@pytest.mark.parametrize("key_length", range(1, 17))
def test_grows_without_holes_whatever_the_padding(tmp_path, key_length):
    path = tmp_path / "counter_0.db"
    file = ValueFile(path)
    keys = [f"{index:x}".ljust(key_length, "-") for index in range(16 ** min(key_length, 3))]
    for key in keys:
        file.add(key)
        file.write(key, 1.0, 0.0)
    file.close()
    assert set(_as_prometheus_reads(path)) == set(keys)
    with path.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        assert os.lseek(opened.fileno(), 0, os.SEEK_HOLE) == size
    reopened = ValueFile(path)
    assert reopened.add(keys[-1]) == 1.0
    assert path.stat().st_size == size
    reopened.close()


def test_entry_larger_than_the_file(tmp_path):
    file = ValueFile(tmp_path / "counter_0.db")
    key = "k" * 300_000
    file.add(key)
    file.write(key, 3.0, 0.0)
    file.close()
    assert _as_prometheus_reads(tmp_path / "counter_0.db") == {key: (3.0, 0.0)}


def test_file_that_was_just_made_has_no_values(tmp_path):
    path = tmp_path / "counter_0.db"
    path.touch()
    assert list(read_values(path)) == []


def test_damaged_file_is_refused(tmp_path):
    path = tmp_path / "counter_0.db"
    path.write_bytes(b"\xff\x00\x00\x00" * 100)
    with pytest.raises(OSError, match=r"counter_0\.db is damaged"):
        ValueFile(path)


def test_no_room_to_grow_is_an_error_and_not_a_crash(tmp_path):
    """The limit on the size of files stands for a full disk: writing fails, where storing to a hole would kill."""
    script = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from connector.metrics.value_file import ValueFile
        file = ValueFile(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        added = 0
        try:
            while True:
                file.add(f"{added:0100d}")
                added += 1
        except OSError:
            pass
        file.write(f"{0:0100d}", 5.0, 0.0)
        print(added)
    """)
    path = tmp_path / "counter_0.db"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    values = _as_prometheus_reads(path)
    assert len(values) == int(done.stdout) > 400
    assert values[f"{0:0100d}"] == (5.0, 0.0)
