"""The executor's folder: its name, who may own it, its lock, and what is swept up."""

import os

import pytest

from connector.metrics.executor_folder import (
    FolderName,
    lock_folder,
    make_folder,
    named_folders,
    remove_stale_folders,
)
from connector.metrics.process_tree import ProcessIdentity, find_executor

GONE = ProcessIdentity(2**22 + 1, "123")
"""No process: ids end at 2**22 on Linux."""


@pytest.fixture
def take_lock():
    held = []

    def take(folder):
        descriptor = lock_folder(folder)
        if descriptor is not None:
            held.append(descriptor)
        return descriptor

    yield take
    for descriptor in held:
        os.close(descriptor)


@pytest.mark.parametrize("start", ["8177234", "Fri_Nov_21_06_14_00_2025"])
def test_name_tells_the_executor(start):
    name = FolderName.of(ProcessIdentity(17, start))
    assert FolderName.parse(str(name)) == name
    assert "-17-" in str(name)


@pytest.mark.parametrize(
    "name", ["kafka-follower", "kafka-follower-1-2", "kafka-follower-1-x-3", "kafka-follower-1-2-3-4", "x-1-2-3", ""]
)
def test_other_names_are_not_ours(name):
    assert FolderName.parse(name) is None


def test_executor_with_a_reused_id_gets_its_own_folder(tmp_path):
    assert make_folder(tmp_path, ProcessIdentity(17, "1")) != make_folder(tmp_path, ProcessIdentity(17, "2"))


def test_folder_is_made_once_for_our_user_alone(tmp_path):
    folder = make_folder(tmp_path / "not" / "there", GONE)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert make_folder(tmp_path / "not" / "there", GONE) == folder


def test_folder_that_others_can_write_is_refused(tmp_path):
    folder = make_folder(tmp_path, GONE)
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        make_folder(tmp_path, GONE)


def test_link_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / str(FolderName.of(GONE))).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        make_folder(tmp_path, GONE)


def test_lock_is_held_until_its_last_descriptor_is_closed(tmp_path, take_lock):
    first = lock_folder(tmp_path)
    assert first is not None
    copy = os.dup(first)
    os.close(first)
    assert take_lock(tmp_path) is None
    os.close(copy)
    assert take_lock(tmp_path) is not None


def test_folders_are_found_by_name(tmp_path):
    made = {make_folder(tmp_path, ProcessIdentity(pid, "5")) for pid in (1, 2)}
    (tmp_path / "other").mkdir()
    (tmp_path / "kafka-follower-0-3-5").touch()
    assert {folder for _, folder in named_folders(tmp_path)} == made
    assert {name.executor.pid for name, _ in named_folders(tmp_path)} == {1, 2}
    assert named_folders(tmp_path / "missing") == []


def test_only_what_is_stale_is_removed(tmp_path, take_lock):
    stale = make_folder(tmp_path, GONE)
    (stale / "counter_0.db").write_bytes(b"x")
    living = make_folder(tmp_path, find_executor())
    served = make_folder(tmp_path, GONE._replace(start="456"))
    assert take_lock(served) is not None
    other_container = tmp_path / str(FolderName("1", GONE))
    other_container.mkdir()
    unrelated = tmp_path / "unrelated"
    unrelated.mkdir()
    remove_stale_folders(tmp_path)
    assert set(tmp_path.iterdir()) == {living, served, other_container, unrelated}
