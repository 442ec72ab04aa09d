"""The cache of fetched jars, and what the downloader is told."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streaming_app.local import artifacts
from streaming_app.local.errors import LocalClusterError


def test_the_cache_is_where_the_user_keeps_caches(tmp_path: Path) -> None:
    assert artifacts.cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "spark-kafka-follower"
    assert artifacts.cache_folder({}) == Path.home() / ".cache" / "spark-kafka-follower"


def cached_set(folder: Path) -> Path:
    folder.mkdir()
    (folder / "one.jar").write_bytes(b"12345")
    (folder / "two.jar").write_bytes(b"1")
    (folder / "complete.json").write_text(json.dumps({"one.jar": 5, "two.jar": 1}))
    return folder


def test_a_complete_set_is_used(tmp_path: Path) -> None:
    folder = cached_set(tmp_path / "set")
    assert artifacts.complete_jars(folder) == [folder / "one.jar", folder / "two.jar"]


@pytest.mark.parametrize("harm", ["cut short", "deleted", "no list", "list cut short", "no folder"])
def test_a_damaged_set_is_not_used(tmp_path: Path, harm: str) -> None:
    folder = cached_set(tmp_path / "set")
    match harm:
        case "cut short":
            (folder / "one.jar").write_bytes(b"123")
        case "deleted":
            (folder / "two.jar").unlink()
        case "no list":
            (folder / "complete.json").unlink()
        case "list cut short":
            (folder / "complete.json").write_text('{"one.jar": 5, "tw')
        case _:
            folder = tmp_path / "nothing"
    assert artifacts.complete_jars(folder) == []


def test_the_ivy_file_names_what_to_fetch_and_what_not(tmp_path: Path) -> None:
    path = tmp_path / "ivy.xml"
    artifacts.write_ivy_file(path, ["g:a:1", "h:b:2"], transitive=False, exclude=["h:c"])
    dependencies = ElementTree.parse(path).getroot().find("dependencies")
    assert dependencies is not None
    assert [dict(child.attrib) for child in dependencies] == [
        {"org": "g", "name": "a", "rev": "1", "conf": "default->master"},
        {"org": "h", "name": "b", "rev": "2", "conf": "default->master"},
        {"org": "h", "module": "c"},
    ]


def test_java_is_told_the_environments_proxies() -> None:
    proxies = {"https": "http://proxy.example:3128", "no": "localhost, .example"}
    assert artifacts.proxy_options(proxies) == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example",
    ]
    assert artifacts.proxy_options({}) == []


def test_an_error_is_one_sentence_then_the_log() -> None:
    error = LocalClusterError("Broker 1 ended: do this.", "first\nsecond\n")
    assert str(error) == "Broker 1 ended: do this.\n  | first\n  | second"
    assert str(LocalClusterError("Do this.")) == "Do this."
