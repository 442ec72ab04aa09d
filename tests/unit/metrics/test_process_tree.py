"""Which process is the executor, on real processes: /proc against ps, zombies, and waiting for an end."""

import os
import shutil
import subprocess
import sys

import pytest

from connector.metrics import process_tree
from connector.metrics.process_tree import ProcessIdentity, ProcessWatch, find_executor, is_running, read_entry

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
needs_ps = pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")


@pytest.fixture(params=[pytest.param("proc", marks=needs_proc), pytest.param("ps", marks=needs_ps)])
def process_table(request, monkeypatch):
    monkeypatch.setattr(process_tree, "_has_proc", lambda: request.param == "proc")


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def _identity(pid: int) -> ProcessIdentity:
    entry = read_entry(pid)
    assert entry is not None
    return entry.identity


def test_own_entry(process_table):
    entry = read_entry(os.getpid())
    assert entry is not None
    assert entry.identity.pid == os.getpid()
    assert entry.parent_pid == os.getppid()
    assert not entry.is_ended
    assert entry.identity.start.isascii()
    assert entry.identity.start.replace("_", "").isalnum()


def test_command_and_stable_identity(process_table, sleeper):
    entry = read_entry(sleeper.pid)
    assert entry is not None
    assert entry.command == "sleep"
    assert entry.parent_pid == os.getpid()
    assert read_entry(sleeper.pid) == entry


@needs_proc
@needs_ps
def test_both_tables_agree(monkeypatch, sleeper):
    from_proc = read_entry(sleeper.pid)
    monkeypatch.setattr(process_tree, "_has_proc", lambda: False)
    from_ps = read_entry(sleeper.pid)
    assert from_proc is not None
    assert from_ps is not None
    assert (from_ps.parent_pid, from_ps.command, from_ps.is_ended) == (
        from_proc.parent_pid,
        from_proc.command,
        from_proc.is_ended,
    )


def test_ended_process_that_nobody_reaped_does_not_run(process_table, sleeper):
    identity = _identity(sleeper.pid)
    assert is_running(identity)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(identity)
    sleeper.wait()
    assert read_entry(sleeper.pid) is None
    assert not is_running(identity)


def test_reused_id_is_another_process(process_table):
    identity = _identity(os.getpid())
    assert is_running(identity)
    assert not is_running(ProcessIdentity(identity.pid, "1"))


def test_process_outside_spark_is_its_own_executor():
    assert find_executor() == _identity(os.getpid())


@pytest.mark.parametrize(
    "through_shell", [pytest.param(False, id="parent"), pytest.param(True, id="grandparent, behind the daemon")]
)
def test_nearest_java_is_the_executor(tmp_path, through_shell):
    """A shell started under the name java stands for the JVM: what counts is the command's name."""
    (tmp_path / "java").symlink_to("/bin/sh")
    ask = (
        f"'{sys.executable}' -c 'from connector.metrics.process_tree import find_executor; print(find_executor().pid)'"
    )
    inner = '/bin/sh -c "$1; :"; :' if through_shell else 'eval "$1"; :'
    process = subprocess.Popen([tmp_path / "java", "-c", inner, "java", ask], stdout=subprocess.PIPE, text=True)
    answer, _ = process.communicate(timeout=30)
    assert int(answer) == process.pid


@pytest.mark.parametrize("has_pidfd", [pytest.param(True, id="pidfd"), pytest.param(False, id="polled")])
def test_watch_sees_the_end(monkeypatch, sleeper, has_pidfd):
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    watch = ProcessWatch(_identity(sleeper.pid))
    assert not watch.wait_end(0.01)
    sleeper.kill()
    assert watch.wait_end(30)
    assert watch.wait_end(0)


def test_watch_of_a_process_that_is_gone(sleeper):
    identity = _identity(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert ProcessWatch(identity).wait_end(30)


def test_watch_is_not_fooled_by_a_reused_id(sleeper):
    assert ProcessWatch(ProcessIdentity(sleeper.pid, "1")).wait_end(30)
