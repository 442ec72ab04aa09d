"""Kafka's jars: fetched once, from where one wants and in the version one wants, or taken from KAFKA_HOME."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streaming_app.local import artifacts, kafka, ports
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.kafka_version import DEFAULT_VERSION, VERSION_VARIABLE

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("asked", "version", "advice"), [("", DEFAULT_VERSION, "KAFKA_HOME"), ("3.9.2", "3.9.2", VERSION_VARIABLE)]
)
def test_no_way_to_the_repository_says_what_to_do(
    asked: str, version: str, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (closed,) = ports.free_ports(1)
    mirror = f"http://{ports.HOST}:{closed}/maven"
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_FOLLOWER_MAVEN_REPO", mirror)
    monkeypatch.setenv(VERSION_VARIABLE, asked)
    with pytest.raises(LocalClusterError) as caught:
        kafka.kafka_class_path()
    sentence = caught.value.sentence
    assert sentence.startswith(f"The jars of kafka-{version} can't be fetched from {mirror} ")
    for each in ("check the network", "KAFKA_FOLLOWER_MAVEN_REPO", advice):
        assert each in sentence
    assert f"{mirror}/org/apache/kafka/kafka_2.13/{version}/" in caught.value.log_tail
    assert not list(tmp_path.rglob("*.jar"))


@pytest.fixture
def own_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kafka_class_path: str) -> Path:
    """Have everything fetched from a repository of our own, into a cache of our own; return the one jar it has."""
    folder = tmp_path / "repository" / "group" / "thing" / "1.0"
    folder.mkdir(parents=True)
    (folder / "thing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>group</groupId><artifactId>thing</artifactId><version>1.0</version></project>"
    )
    layout = f"{tmp_path}/repository/[organisation]/[module]/[revision]/[module]-[revision]"
    settings = tmp_path / "settings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="own"/><caches defaultCacheDir="{tmp_path}/ivy"/>'
        f'<resolvers><filesystem name="own" m2compatible="true">'
        f'<ivy pattern="{layout}.pom"/><artifact pattern="{layout}.[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KAFKA_FOLLOWER_IVY_SETTINGS", str(settings))
    jar = folder / "thing-1.0.jar"
    jar.write_bytes(b"a jar")
    return jar


def test_an_own_ivy_settings_file_is_used_and_once_is_enough(own_repository: Path) -> None:
    (fetched,) = artifacts.fetch("thing", ["group:thing:1.0"], transitive=False)
    assert fetched.read_bytes() == b"a jar"
    own_repository.unlink()
    assert artifacts.fetch("thing", ["group:thing:1.0"], transitive=False) == [fetched]


def test_two_that_want_the_same_jars_fetch_them_once(own_repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ivy, runs = artifacts.run_ivy, []

    def counted(set_name: str, download: Path) -> None:
        runs.append(download)
        run_ivy(set_name, download)

    monkeypatch.setattr(artifacts, "run_ivy", counted)
    with ThreadPoolExecutor(2) as pool:  # each opens the lock file itself, as two processes do
        one, two = pool.map(lambda _: artifacts.fetch("thing", ["group:thing:1.0"]), range(2))
    assert one == two
    assert len(runs) == 1


def test_what_a_killed_download_left_is_cleared_away(own_repository: Path) -> None:
    (fetched,) = artifacts.fetch("thing", ["group:thing:1.0"])
    (fetched.parent.parent / f".{fetched.parent.name}-abandoned").mkdir()
    (fetched.parent / "complete.json").unlink()
    assert artifacts.fetch("thing", ["group:thing:1.0"]) == [fetched]
    names = {path.name for path in fetched.parent.parent.iterdir()}
    assert names == {fetched.parent.name, f"{fetched.parent.name}.lock"}


def test_kafka_home_is_used_when_set(kafka_class_path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    libraries = tmp_path / "libs"
    libraries.mkdir()
    for jar in artifacts.kafka_jars():
        (libraries / jar.name).symlink_to(jar)
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    assert kafka.kafka_class_path() == str(libraries / "*")
    refused = LocalKafka(("az-a",), broker_config={"log.retention.hours": "many"})
    with pytest.raises(LocalClusterError) as caught:
        refused.start()
    # Kafka's own words, and there is no Kafka but that one on the class path.
    assert "Invalid value many for configuration log.retention.hours" in caught.value.log_tail


def test_a_kafka_home_of_another_version_than_asked_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    libraries = tmp_path / "libs"
    libraries.mkdir()
    for name in ("kafka_2.13-4.1.0.jar", "log4j-core-2.24.3.jar"):
        (libraries / name).touch()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    monkeypatch.delenv(VERSION_VARIABLE, raising=False)
    assert kafka.kafka_class_path() == str(libraries / "*")
    monkeypatch.setenv(VERSION_VARIABLE, "4.1.0")
    assert kafka.kafka_class_path() == str(libraries / "*")
    monkeypatch.setenv(VERSION_VARIABLE, "4.1.1")
    with pytest.raises(LocalClusterError, match=rf"is not the Kafka that {VERSION_VARIABLE}=4\.1\.1 asks for"):
        kafka.kafka_class_path()


def test_a_kafka_home_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(LocalClusterError, match=r"is no Apache Kafka 4 .*unset it"):
        LocalKafka().start()
