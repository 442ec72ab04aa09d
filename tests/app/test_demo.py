"""The demo as `make run` starts it, with fewer orders and in a folder of its own."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_app.local.leftovers import leftover_processes, wait_nothing_left
from streaming_app.local.supervise import SupervisedProcess
from tests.app.launching import start, wait_for_job

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("kafka_class_path"),
]

ORDER_COUNT = 30_000
START_IN_FOLDER = (
    "import sys; from pathlib import Path; from streaming_app.local.demo import main; "
    "sys.exit(main(sys.argv[2:], folder=Path(sys.argv[1])))"
)


class DemoRun:
    """One run of the demo in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "demo"
        self._log_path = folder / "demo-output.txt"
        self.process: SupervisedProcess

    def start(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-c", START_IN_FOLDER, str(self.folder), *arguments]
        self.process = start(command, self._log_path, environment)

    def output(self) -> str:
        return self._log_path.read_text(encoding="utf-8")


@pytest.fixture
def demo(tmp_path) -> Iterator[DemoRun]:
    run = DemoRun(tmp_path)
    yield run
    run.process.kill()
    assert wait_nothing_left(run.folder, timeout_s=20) == []


def test_it_ends_well_by_itself_and_reports_what_it_found(demo):
    demo.start("--events", str(ORDER_COUNT))
    assert demo.process.wait(300) == 0, demo.output()
    report = (demo.folder / "report.txt").read_text(encoding="utf-8")
    assert demo.output().endswith(report)
    figures = dict(line.strip().rsplit("  ", 1) for line in report.split("\n\n")[0].splitlines()[1:])
    assert {name.strip(): int(number.replace(",", "")) for name, number in figures.items()} == {
        "produced (acknowledged, acks=all)": ORDER_COUNT,
        "held by brokers (high watermarks)": ORDER_COUNT,
        "in Parquet": ORDER_COUNT,
        "distinct topic-partition-offset": ORDER_COUNT,
        "missing": 0,
        "doubled": 0,
    }
    assert report.count("100.0 %") == 8, "three executors and the total, measured twice"
    assert "Every row is there exactly once" in report
    assert len(list((demo.folder / "metrics").glob("executor-*.prom"))) == 3
    assert leftover_processes(demo.folder) == []


def test_reading_from_leaders_is_seen_by_both_measures_and_fails(demo):
    demo.start("--events", "3000", STREAMING_APP_SOURCE_OPTIONS_REPLICASELECTION="leader")
    assert demo.process.wait(300) == 1, demo.output()
    assert "PROBLEM: By the executors' counters only" in demo.output()
    assert "PROBLEM: By the brokers' request logs only" in demo.output()


def test_ctrl_c_leaves_nothing_running(demo):
    demo.start("--events", "100000000")
    wait_for_job(lambda: "producing" in demo.output(), "the producer", demo.process, timeout_s=200)
    assert len(leftover_processes(demo.folder)) >= 8, "brokers, master, workers, driver"
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(60) == 130
    assert "Interrupted; everything that was started has ended." in demo.output()
    assert leftover_processes(demo.folder) == []


def test_a_second_demo_in_the_same_folder_is_refused(demo):
    demo.start("--events", "100000000")
    wait_for_job(lambda: "starting" in demo.output(), "the lock", demo.process)
    second = start(
        [sys.executable, "-c", START_IN_FOLDER, str(demo.folder), "--events", "1"], demo.folder.parent / "second.txt"
    )
    assert second.wait(60) == 1
    assert second.log_tail() == "The demo is running here already: wait for it, or end it with Ctrl-C."


def test_a_job_file_that_cannot_be_used_is_told_before_anything_starts(demo, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('[app]\nnmae = "x"\n', encoding="utf-8")
    demo.start("--config", str(path))
    assert demo.process.wait(60) == 1
    assert "app.nmae: there is no such setting; did you mean app.name?" in demo.output()
    assert "starting" not in demo.output()
