"""Settings of the endpoint, and what a worker gets when they or the folder are no good."""

import logging
from pathlib import Path

import pytest

from connector.errors import ConfigError
from connector.metrics import endpoint, executor_folder
from connector.metrics.address import metrics_url
from connector.metrics.catalog import FETCH_BYTES
from connector.metrics.endpoint import EndpointSettings, executor_recorder, list_endpoints
from connector.metrics.exporter import ports_to_try
from connector.metrics.process_tree import ProcessIdentity
from connector.metrics.recorder import NullRecorder


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    monkeypatch.setattr(endpoint, "_membership", endpoint._Membership())


@pytest.mark.parametrize(
    ("environ", "port"),
    [
        pytest.param({}, 0, id="default is a free port"),
        pytest.param({"KAFKA_FOLLOWER_METRICS_PORT": ""}, 0, id="empty is unset"),
        pytest.param({"KAFKA_FOLLOWER_METRICS_PORT": " 9400 "}, 9400, id="blanks"),
        pytest.param({"KAFKA_FOLLOWER_METRICS_PORT": "65535"}, 65535, id="last port"),
        pytest.param({"KAFKA_FOLLOWER_METRICS_PORT": "Off"}, None, id="off"),
    ],
)
def test_port(environ, port):
    assert EndpointSettings.from_environment(environ).port == port


@pytest.mark.parametrize("text", ["http", "-1", "65536", "94.0", "9400,9401"])
def test_port_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=f"KAFKA_FOLLOWER_METRICS_PORT = '{text}'.*or off"):
        EndpointSettings.from_environment({"KAFKA_FOLLOWER_METRICS_PORT": text})


def test_host_and_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    default = EndpointSettings.from_environment({})
    assert (default.host, default.root) == ("0.0.0.0", tmp_path)
    chosen = EndpointSettings.from_environment(
        {"KAFKA_FOLLOWER_METRICS_HOST": "10.0.0.7", "KAFKA_FOLLOWER_METRICS_DIR": "/run/metrics"}
    )
    assert (chosen.host, chosen.root) == ("10.0.0.7", Path("/run/metrics"))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:9/metrics"),
        ("::", "http://[::1]:9/metrics"),
        ("10.0.0.7", "http://10.0.0.7:9/metrics"),
        ("fd00::7", "http://[fd00::7]:9/metrics"),
    ],
)
def test_url_from_this_machine(host, url):
    assert metrics_url(host, 9) == url


@pytest.mark.parametrize(
    ("port", "previous_port", "first_tried"),
    [
        pytest.param(0, None, [0], id="free port"),
        pytest.param(0, 4711, [4711, 0], id="restart keeps the port that is scraped"),
        pytest.param(9400, None, list(range(9400, 9416)), id="neighbours of a configured port"),
        pytest.param(9400, 9403, [9403, *range(9400, 9416)], id="restart among neighbours"),
        pytest.param(65530, None, list(range(65530, 65536)), id="end of the range"),
    ],
)
def test_ports_to_try(port, previous_port, first_tried):
    assert list(ports_to_try(port, previous_port)) == first_tried


def test_broken_folder_warns_once_and_reading_goes_on(tmp_path, caplog):
    (tmp_path / "file").touch()
    settings = EndpointSettings(root=tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        recorders = [executor_recorder(rack="az-a", source="option", settings=settings) for _ in range(3)]
    assert all(isinstance(recorder, NullRecorder) for recorder in recorders)
    recorders[0].count(FETCH_BYTES, 1, "orders", "az-a", "local")
    assert len(caplog.records) == 1
    assert "not recorded, reading goes on" in caplog.records[0].message
    assert str(tmp_path / "file") in caplog.records[0].message


def test_bad_environment_warns_and_reading_goes_on(monkeypatch, caplog):
    monkeypatch.setenv("KAFKA_FOLLOWER_METRICS_PORT", "http")
    assert isinstance(executor_recorder(rack=None, source="none"), NullRecorder)
    assert "KAFKA_FOLLOWER_METRICS_PORT" in caplog.text


def test_switched_off_leaves_no_trace(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("KAFKA_FOLLOWER_METRICS_PORT", "off")
    monkeypatch.setenv("KAFKA_FOLLOWER_METRICS_DIR", str(tmp_path / "root"))
    assert isinstance(executor_recorder(rack=None, source="none"), NullRecorder)
    assert not (tmp_path / "root").exists()
    assert caplog.records == []


def test_looking_for_endpoints_does_not_hinder_an_exporter_s_start(tmp_path, monkeypatch):
    """A lock taken to look would be read as "an exporter runs" by the worker that wants to start it."""
    folder = tmp_path / str(executor_folder.FolderName.of(ProcessIdentity(2, "3")))
    folder.mkdir(mode=0o700)
    (folder / "port").write_text("0.0.0.0:9400\n")

    def refuse(folder):
        raise AssertionError(f"{folder} was locked")

    monkeypatch.setattr(executor_folder, "lock_folder", refuse)
    (folder / "exporter").write_text("4194304 1\n")  # more than any process id
    assert list_endpoints(tmp_path) == []
    executor_folder.write_exporter(folder)
    assert [each.port for each in list_endpoints(tmp_path)] == [9400]


def test_no_endpoints_where_nothing_serves(tmp_path):
    (tmp_path / "kafka-follower-1-2-3").mkdir(mode=0o700)
    (tmp_path / "kafka-follower-1-2-3" / "port").write_text("0.0.0.0:9400\n")
    assert list_endpoints(tmp_path) == []
    assert list_endpoints(tmp_path / "missing") == []
