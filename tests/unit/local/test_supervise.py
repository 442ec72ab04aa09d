"""No supervised program outlives its starter, and its end is reported as it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.local.errors import LocalClusterError
from streaming_app.local.leftovers import CLUSTER_MARKER, leftover_processes, wait_nothing_left
from streaming_app.local.supervise import SupervisedProcess, tail_of, telling_tail_of
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
ENDS_WITHIN_S = 20.0
SLEEPER = ("sleep", "600")


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Mark every process that the test starts with its own folder."""
    monkeypatch.setenv(CLUSTER_MARKER, str(tmp_path))
    return tmp_path


def start(marked: Path, *argv: str) -> SupervisedProcess:
    return SupervisedProcess.start(argv, name="The program", log_path=marked / "log")


def process_state(pid: int) -> str:
    return subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()[:1]


def starter(marked: Path, body: str) -> subprocess.Popen[str]:
    """Run a Python program of its own that starts a sleeper (as `child`), then goes on with `body`."""
    program = f"""
import os, sys, time
from pathlib import Path
from streaming_app.local.supervise import SupervisedProcess
folder = Path({str(marked)!r}) / "own" / "child"
folder.mkdir(parents=True)
child = SupervisedProcess.start({SLEEPER!r}, name="sleeper", log_path=folder / "log", remove_when_orphaned=folder)
print(child.pid, flush=True)
{body}
"""
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_exit_code_and_output_are_the_programs(marked: Path) -> None:
    program = start(marked, "sh", "-c", "echo to stdout; echo to stderr >&2; exit 7")
    assert program.wait(ENDS_WITHIN_S) == 7
    assert program.log_tail() == "to stdout\nto stderr"


def test_death_by_a_signal_is_told_as_a_shell_does(marked: Path) -> None:
    program = start(marked, *SLEEPER)
    os.kill(program.pid, signal.SIGKILL)
    assert program.wait(ENDS_WITHIN_S) == 128 + signal.SIGKILL


def test_a_program_that_does_not_exist_is_named(marked: Path) -> None:
    with pytest.raises(LocalClusterError, match=r"The program can't be started: .*no-such-program"):
        start(marked, "/no-such-program")


def test_stop_lets_the_program_end_by_itself(marked: Path) -> None:
    program = start(marked, "sh", "-c", "trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    wait_for(lambda: program.log_tail() == "ready", "the program's word", ENDS_WITHIN_S)
    program.stop(ENDS_WITHIN_S)
    assert program.poll() == 0
    assert program.log_tail().splitlines()[-1] == "ended"


def test_stop_kills_what_ignores_it_and_what_it_started(marked: Path) -> None:
    program = start(marked, "sh", "-c", "trap '' TERM; sleep 600 & echo ready; while :; do sleep 1; done")
    wait_for(lambda: program.log_tail() == "ready", "the program's word", ENDS_WITHIN_S)
    program.stop(0.1)
    assert program.poll() == 128 + signal.SIGKILL
    assert wait_nothing_left(marked, ENDS_WITHIN_S) == []


def test_pause_freezes_and_stop_ends_a_frozen_program(marked: Path) -> None:
    program = start(marked, *SLEEPER)
    program.pause()
    wait_for(lambda: process_state(program.pid) == "T", "the frozen state", ENDS_WITHIN_S)
    program.resume()
    wait_for(lambda: process_state(program.pid) in {"S", "R"}, "the running state", ENDS_WITHIN_S)
    program.pause()
    program.stop(ENDS_WITHIN_S)
    assert program.poll() == 128 + signal.SIGTERM


def test_what_the_program_leaves_behind_in_its_group_ends_with_it(marked: Path) -> None:
    program = start(marked, "sh", "-c", "sleep 600 & exit 3")
    assert program.wait(ENDS_WITHIN_S) == 3
    assert wait_nothing_left(marked, ENDS_WITHIN_S) == []


def test_signals_to_a_program_that_ended_do_nothing(marked: Path) -> None:
    program = start(marked, "true")
    program.wait(ENDS_WITHIN_S)
    program.pause()
    program.kill()
    program.stop(1.0)
    assert program.poll() == 0


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_starter_ended_by(sent: signal.Signals, marked: Path) -> None:
    with starter(marked, "time.sleep(600)") as process:
        assert process.stdout is not None
        child_pid = int(process.stdout.readline())
        assert child_pid in {left.pid for left in leftover_processes(marked)}
        process.send_signal(sent)
    assert wait_nothing_left(marked, ENDS_WITHIN_S) == []
    wait_for(lambda: not (marked / "own").exists(), "the removal of the folder", ENDS_WITHIN_S)


def test_nothing_outlives_a_starter_that_just_returns(marked: Path) -> None:
    with starter(marked, "") as process:
        process.communicate()
    assert process.returncode == 0
    assert wait_nothing_left(marked, ENDS_WITHIN_S) == []


def test_a_fork_that_keeps_the_lifeline_open_saves_nobody(marked: Path) -> None:
    with starter(marked, "pid = os.fork()\nif pid: print(pid, flush=True)\ntime.sleep(600)") as process:
        assert process.stdout is not None
        child_pid, fork_pid = int(process.stdout.readline()), int(process.stdout.readline())
        process.kill()
        wait_for(lambda: {left.pid for left in leftover_processes(marked)} == {fork_pid}, "the end of all others")
        assert not Path(f"/proc/{child_pid}").exists()
        os.kill(fork_pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_nothing_outlives_its_supervisor(marked: Path) -> None:
    program = start(marked, *SLEEPER)
    program._supervisor.kill()
    program.wait(ENDS_WITHIN_S)
    assert wait_nothing_left(marked, ENDS_WITHIN_S) == []


def test_the_programs_terminal_is_not_ours(marked: Path) -> None:
    program = start(marked, *SLEEPER)
    assert os.getsid(program.pid) != os.getsid(0)
    assert os.getpgid(program.pid) == program.pid
    program.kill()


def test_tail_is_the_end_and_survives_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(10_000)))
    assert tail_of(log, 2) == "line 9998 \ufffd\nline 9999 \ufffd"
    assert tail_of(tmp_path / "missing") == ""


def test_the_telling_tail_starts_with_the_first_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [f"09:00 INFO {number}" for number in range(20)]
    log.write_text("\n".join([*lines, "09:01 ERROR the cause", "\tat Some.java", *lines]))
    assert telling_tail_of(log, 3).splitlines() == ["09:01 ERROR the cause", "\tat Some.java", "09:00 INFO 0"]
    log.write_text("\n".join(lines))
    assert telling_tail_of(log, 2).splitlines() == ["09:00 INFO 18", "09:00 INFO 19"]
    log.write_text("only")
    assert telling_tail_of(log, 2) == "only"


def test_the_tail_leaves_out_what_an_earlier_run_wrote(marked: Path) -> None:
    start(marked, "sh", "-c", "echo 09:00 ERROR of the first run").wait(ENDS_WITHIN_S)
    second = start(marked, "sh", "-c", "echo of the second run")
    second.wait(ENDS_WITHIN_S)
    assert second.log_tail() == "of the second run"
