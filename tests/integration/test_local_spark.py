"""The standalone Spark cluster: every executor finds its worker's rack, and workers come and go."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from streaming_app.local import ports, spark
from streaming_app.local.errors import JavaMissing
from streaming_app.local.java import find_java
from streaming_app.local.leftovers import leftover_processes
from streaming_app.local.spark import DaemonDied, LocalSpark
from tests.requirements import require

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

RACKS = ("az-a", "az-b", None)


@pytest.fixture(autouse=True, scope="module")
def java() -> None:
    try:
        find_java()
    except JavaMissing as error:
        require(False, str(error))


@pytest.fixture(scope="module")
def cluster(java: None) -> Iterator[LocalSpark]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_CLIENT_RACK", "of-the-starting-process")
        patch.setenv("SPARK_WORKER_CORES", "64")  # a person's own settings don't reach the cluster
        local = LocalSpark(
            RACKS, environment={"FOR_ALL": "yes"}, rack_environment={"az-b": {"FOR_ONE_RACK": "yes"}}, memory="512m"
        )
        local.start()
    with local:
        yield local


def test_each_executor_finds_its_own_rack_and_this_python(cluster: LocalSpark, tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name("local_spark_probe.py"))),
            *(json.dumps(cluster.driver_conf), str(len(RACKS)), str(tmp_path / "flags")),
        ],
        env={**os.environ, **cluster.driver_environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert {(one["KAFKA_CLIENT_RACK"], one["FOR_ONE_RACK"]) for one in found} == {
        ("az-a", None),
        ("az-b", "yes"),
        (None, None),
    }
    assert {one["FOR_ALL"] for one in found} == {"yes"}
    assert {os.path.realpath(one["python"]) for one in found} == {os.path.realpath(sys.executable)}
    assert all(one["SPARK_LOCAL_DIRS"].startswith(f"{cluster.folder}/worker-") for one in found)


def test_the_master_lists_the_workers_with_what_they_offer(cluster: LocalSpark) -> None:
    state = cluster.state()
    assert state["url"] == cluster.master_url
    assert [(worker["cores"], worker["memory"]) for worker in state["workers"]] == [(1, 512)] * 3
    assert [worker.rack for worker in cluster.workers] == list(RACKS)


def test_a_killed_worker_is_missed_and_can_be_started_again(cluster: LocalSpark) -> None:
    worker = cluster.workers[1]
    worker.kill()
    assert not worker.is_running
    cluster.wait_ready()
    assert cluster.alive_worker_count() == 2
    worker.start()
    cluster.wait_ready()
    assert cluster.alive_worker_count() == 3


def test_a_worker_killed_by_others_is_told(cluster: LocalSpark) -> None:
    worker = cluster.workers[0]
    assert worker.process is not None
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait(30)
    with pytest.raises(DaemonDied, match=r"Spark worker 1 \(az-a\) ended by itself with exit code 137"):
        cluster.wait_ready()
    worker.start()
    cluster.wait_ready()


def test_a_worker_that_dies_at_start_is_told_with_the_end_of_its_log(java: None) -> None:
    local = LocalSpark(("az-a",), memory="much")
    with pytest.raises(DaemonDied) as caught:
        local.start()
    assert re.match(r"Spark worker 1 \(az-a\) ended by itself with exit code 1: ", caught.value.sentence)
    assert "Usage: Worker [options] <master>" in caught.value.log_tail
    folder = re.search(r"from (\S+)/worker-1,", caught.value.sentence)
    assert folder is not None
    assert leftover_processes(folder[1]) == []
    assert not Path(folder[1]).exists()


def test_a_taken_port_is_given_up_for_another(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        port, other = ports.free_ports(2)
        taken.bind((ports.HOST, port))
        taken.listen()
        first_choice = [[port, other]]
        monkeypatch.setattr(
            spark, "free_ports", lambda count: first_choice.pop() if first_choice else ports.free_ports(count)
        )
        with LocalSpark(("az-a",)) as local:
            assert first_choice == []
            assert not local.master_url.endswith(f":{port}")
            assert local.alive_worker_count() == 1


def test_a_master_whose_front_page_answers_for_its_report_does_not_answer_yet() -> None:
    pages = iter([b"<!DOCTYPE html><html></html>", b'{"status": "ALIVE", "aliveworkers": 2}'])

    class FrontPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(next(pages))

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    local = LocalSpark(("az-a",))
    with HTTPServer((ports.HOST, 0), FrontPage) as server, ThreadPoolExecutor(1) as pool:
        local._state_url = f"http://{ports.HOST}:{server.server_port}/json/"
        for expected in ({}, {"status": "ALIVE", "aliveworkers": 2}):
            pool.submit(server.handle_request)
            assert local.state() == expected


def test_nothing_is_left_after_a_normal_end(java: None, tmp_path: Path) -> None:
    with LocalSpark(("az-a",), data_folder=tmp_path) as local:
        assert len(leftover_processes(tmp_path)) == 4  # a master and a worker, each with its supervisor
        host, _, port = local.master_url.removeprefix("spark://").partition(":")
    assert leftover_processes(tmp_path) == []
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
    assert "Registering worker" in (tmp_path / "master" / "daemon.log").read_text()
