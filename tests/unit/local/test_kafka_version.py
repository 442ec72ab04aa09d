"""Which Kafka version is run, and of which artifacts it is made."""

import pytest

from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka_version import DEFAULT_VERSION, VERSION_VARIABLE, kafka_artifacts, kafka_version


@pytest.mark.parametrize("version", ["3.3.0", "3.3.2", "3.9.2", "3.10.0", "4.4.0", "10.0.0"])
def test_the_variable_names_the_version(version: str) -> None:
    assert kafka_version({VERSION_VARIABLE: version}) == version


@pytest.mark.parametrize("environ", [{}, {VERSION_VARIABLE: ""}], ids=["unset", "empty"])
def test_without_the_variable_it_is_the_default(environ: dict[str, str]) -> None:
    assert kafka_version(environ) == DEFAULT_VERSION


@pytest.mark.parametrize(
    "wanted", ["3.2.3", "2.8.2", "4.4", "latest", "4.4.0-rc1", " 4.4.0", "4.4.0/../..", "\u0664.\u0664.\u0660"]
)
def test_what_is_no_version_or_needs_zookeeper_is_refused(wanted: str) -> None:
    with pytest.raises(LocalClusterError) as caught:
        kafka_version({VERSION_VARIABLE: wanted})
    assert str(caught.value).startswith(f"{VERSION_VARIABLE}={wanted} is no Apache Kafka that can be run here: set it")
    assert "from 3.3.0 on" in str(caught.value)


@pytest.mark.parametrize(("version", "has_log4j_1"), [("3.3.2", True), ("3.9.2", True), ("4.0.0", False)])
def test_brokers_before_kafka_4_get_log4j_1s_classes_on_top_of_log4j_2(version: str, has_log4j_1: bool) -> None:
    broker, *logging = kafka_artifacts(version)
    assert broker == f"org.apache.kafka:kafka_2.13:{version}"
    names = {artifact.split(":")[1] for artifact in logging}
    assert names == {"log4j-slf4j-impl"} | ({"log4j-1.2-api"} if has_log4j_1 else set())
    assert len({artifact.split(":")[2] for artifact in logging}) == 1
