"""An executor's endpoint, with real processes: a stand-in for the JVM, workers that come and go, and the exporter."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connector.metrics.executor_folder import lock_folder, value_paths
from tests.integration.stand_in_executor import Executor, exporter_pids, is_alive
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

BYTES = "kafka_follower_fetch_bytes_total"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "metrics"


@pytest.fixture
def start_executor(tmp_path: Path, root: Path) -> Iterator[Callable[..., Executor]]:
    started: list[Executor] = []

    def start(**environ: str) -> Executor:
        started.append(Executor(tmp_path / f"executor-{len(started)}", root, **environ))
        return started[-1]

    yield start
    for executor in started:
        executor.close()
    wait_for(lambda: not exporter_pids(root), "the end of the exporters")


@pytest.fixture
def executor(start_executor: Callable[..., Executor]) -> Executor:
    return start_executor()


HOLDING = "r = join(); count(r, 100); say(pid=os.getpid(), slot=r.slot); hold()"


def test_short_lived_workers_continue_one_counter(executor, root):
    for round_number in range(1, 6):
        executor.run_worker("count(join(), 100)")
        assert executor.scrape()[BYTES] == 100 * round_number
    assert len(exporter_pids(root)) == 1
    assert len(value_paths(executor.endpoint().folder)[0]) == 1


def test_workers_at_once_have_their_own_slots_and_share_one_exporter(executor, root):
    workers = [executor.start_worker(HOLDING) for _ in range(5)]
    assert {worker.answer()["slot"] for worker in workers} == set(range(5))
    assert executor.scrape()[BYTES] == 500
    assert len(exporter_pids(root)) == 1
    for worker in workers:
        worker.let_go()


def test_killed_workers_free_their_slots_and_no_counter_falls(executor):
    seen = [0.0]
    held = [executor.start_worker(HOLDING) for _ in range(3)]
    for worker in held:
        worker.answer()
    for _ in range(4):
        seen.append(executor.scrape()[BYTES])
        held.pop(0).kill()
        seen.append(executor.scrape()[BYTES])
        held.append(executor.start_worker(HOLDING))
        assert held[-1].answer()["slot"] in (0, 1, 2)
    seen.append(executor.scrape()[BYTES])
    assert seen == sorted(seen)
    assert seen[-1] == 700
    assert len(value_paths(executor.endpoint().folder)[0]) == 3
    for worker in held:
        worker.let_go()


@pytest.mark.parametrize("ending", ["SIGKILL", "normal exit"])
def test_exporter_and_folder_end_with_the_executor(executor, root, ending):
    worker = executor.start_worker(HOLDING)
    worker.answer()
    folder = executor.endpoint().folder
    started_s = time.monotonic()
    if ending == "SIGKILL":
        executor.kill()
    else:
        executor.process.stdin.close()
        executor.process.wait()
    wait_for(lambda: not folder.exists() and not exporter_pids(root), "the end of the exporter")
    assert time.monotonic() - started_s < 5
    assert list(root.iterdir()) == []
    worker.let_go()


def test_exporter_outlives_workers_and_is_nobodys_child(executor, root):
    executor.run_worker("count(join(), 100)")
    endpoint = executor.endpoint()
    (pid,) = exporter_pids(root)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    parent_pid, session_id = int(fields[1]), int(fields[3])
    assert parent_pid != executor.process.pid
    assert session_id not in (os.getsid(0), os.getsid(executor.process.pid))
    opened = {int(entry.name): os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    assert [opened.pop(number) for number in range(3)] == [os.devnull] * 3
    others = [target for target in opened.values() if not target.startswith(("socket:", "anon_inode:"))]
    assert others == [str(endpoint.folder)]


def test_gauges_expire_unless_they_are_refreshed_or_lasting(executor):
    executor.run_worker("""
        r = join(gauge_expiry_s=1.0)
        r.gauge(catalog.PREFERRED_READ_REPLICA, 4, "orders", "0")
        count(r, 1)
        say(pid=os.getpid())
    """)
    gauge = "kafka_follower_preferred_read_replica"
    executor.endpoint()
    wait_for(lambda: gauge not in executor.scrape(), "the gauge to expire")
    executor.run_worker("""join().gauge(catalog.PREFERRED_READ_REPLICA, 7, "orders", "0")""")
    values = executor.scrape()
    assert values["kafka_follower_rack_info"] == 1
    assert values[BYTES] == 1


def test_last_writer_of_a_gauge_wins_across_slots(executor):
    first = executor.start_worker(
        """r = join(); r.gauge(catalog.PREFERRED_READ_REPLICA, 1, "orders", "0"); say(pid=os.getpid()); hold()"""
    )
    first.answer()
    executor.run_worker("""join().gauge(catalog.PREFERRED_READ_REPLICA, 2, "orders", "0")""")
    assert executor.scrape()["kafka_follower_preferred_read_replica"] == 2
    first.let_go()


def test_next_worker_starts_a_dead_exporter_on_the_same_port(executor, root):
    executor.run_worker("count(join(), 100)")
    port = executor.endpoint().port
    (pid,) = exporter_pids(root)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the exporter's death")
    executor.run_worker("count(join(), 100)")
    assert executor.scrape()[BYTES] == 200
    assert executor.endpoint().port == port
    assert exporter_pids(root) != [pid]


def test_living_worker_starts_a_dead_exporter_with_its_next_task(executor, root):
    worker = executor.start_worker("r = join(); count(r, 100); say(pid=os.getpid()); hold(); count(join(), 1)")
    worker.answer()
    executor.endpoint()
    (pid,) = exporter_pids(root)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the exporter's death")
    worker.let_go()
    assert executor.scrape()[BYTES] == 101


def test_exporter_is_not_started_again_and_again(executor, root):
    executor.run_worker("count(join(restart_delay_s=3600.0), 100)")
    folder = executor.endpoint().folder
    (pid,) = exporter_pids(root)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the exporter's death")
    executor.run_worker("count(join(restart_delay_s=3600.0), 100)")
    descriptor = lock_folder(folder)
    assert descriptor is not None  # an exporter that was started would hold it
    os.close(descriptor)


def test_exporter_that_can_not_serve_tells_the_next_worker(start_executor):
    executor = start_executor(KAFKA_FOLLOWER_METRICS_HOST="192.0.2.1")
    worker = executor.start_worker("count(join(), 100); say(pid=os.getpid())")
    worker.wait_end()
    (folder,) = executor.root.iterdir()
    log = folder / "exporter.log"
    wait_for(lambda: "Cannot assign requested address" in log.read_text(), "the exporter's last words")
    wait_for(lambda: not exporter_pids(executor.root), "the exporter's end")
    second = executor.start_worker("count(join(), 100); say(pid=os.getpid())")
    second.wait_end()
    assert "metrics exporter ended and is started again: OSError" in second.log_path.read_text()
    assert worker.log_path.read_text() == ""


def test_executors_on_one_machine_share_a_configured_port_range(start_executor):
    first = start_executor()
    first.run_worker("count(join(), 1)")
    port = first.endpoint().port
    others = [start_executor(KAFKA_FOLLOWER_METRICS_PORT=str(port)) for _ in range(2)]
    for amount, executor in enumerate(others, start=2):
        executor.run_worker(f"count(join(), {amount})")
        executor.endpoint()
    ports = [executor.endpoint().port for executor in (first, *others)]
    assert len(set(ports)) == 3
    assert all(port < other <= port + 15 for other in ports[1:])
    assert [executor.scrape()[BYTES] for executor in (first, *others)] == [1, 2, 3]


def test_users_own_metrics_are_untouched(executor):
    facts = executor.run_worker("""
        join()
        import prometheus_client
        mine = prometheus_client.Counter("mine", "The user's.")
        mine.inc(5)
        text = prometheus_client.generate_latest().decode()
        say(pid=os.getpid(), value=mine._value.get(), kind=type(mine._value).__name__,
            leaked="kafka_follower" in text, variable="PROMETHEUS_MULTIPROC_DIR" in os.environ)
    """)
    del facts["pid"]
    assert facts == {"value": 5.0, "kind": "MutexValue", "leaked": False, "variable": False}


def test_users_multiprocess_files_hold_only_the_users_metrics(start_executor, tmp_path):
    users_folder = tmp_path / "users"
    users_folder.mkdir()
    executor = start_executor(PROMETHEUS_MULTIPROC_DIR=str(users_folder))
    executor.run_worker("""
        count(join(), 100)
        import prometheus_client
        prometheus_client.Counter("mine", "The user's.").inc(5)
        say(pid=os.getpid())
    """)
    assert executor.scrape()[BYTES] == 100
    (users_file,) = users_folder.iterdir()
    assert b"mine_total" in users_file.read_bytes()
    assert b"kafka_follower" not in users_file.read_bytes()


def test_fork_of_a_worker_neither_counts_nor_keeps_the_slot(executor):
    worker = executor.start_worker("""
        r = join()
        count(r, 100)
        if os.fork() == 0:
            count(r, 1_000)
            say(pid=os.getpid(), orphan=True)
            hold()
            os._exit(0)
    """)
    assert worker.answer()["orphan"]
    wait_for(lambda: executor.run_worker("r = join(); say(pid=os.getpid(), slot=r.slot)")["slot"] == 0, "slot 0")
    assert executor.scrape()[BYTES] == 100
    worker.let_go()


def test_emptied_temporary_folder_is_joined_anew(executor, root):
    worker = executor.start_worker("""
        count(join(), 100)
        say(pid=os.getpid())
        hold()
        count(join(), 7)
    """)
    worker.answer()
    folder = executor.endpoint().folder
    exporters = exporter_pids(root)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    worker.let_go()
    assert executor.scrape()[BYTES] == 7
    wait_for(lambda: not set(exporters) & set(exporter_pids(root)), "the end of the exporter without a folder")


def test_exporter_sweeps_what_killed_executors_left(start_executor, root):
    killed = start_executor()
    killed.run_worker("count(join(), 100)")
    left_behind = killed.endpoint().folder
    (pid,) = exporter_pids(root)
    os.kill(pid, signal.SIGSTOP)
    killed.kill()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the exporter's death")
    assert left_behind.exists()
    other = start_executor()
    other.run_worker("count(join(), 1)")
    other.endpoint()
    wait_for(lambda: not left_behind.exists(), "the sweep")
    assert other.scrape()[BYTES] == 1


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        pytest.param(
            "connector.metrics.endpoint", {"prometheus_client", "http.server", "pyspark", "pyarrow"}, id="worker"
        ),
        pytest.param("connector.metrics.exporter", {"pyspark", "pyarrow", "numpy", "kio"}, id="exporter"),
    ],
)
def test_imports_stay_light(module, unwanted):
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not unwanted & set(done.stdout.split())
