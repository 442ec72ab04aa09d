import pickle
from pathlib import Path

import pytest

from streaming_app.settings import (
    SETTINGS,
    AppConfig,
    SettingsError,
    TriggerMode,
    load_settings,
    parse_settings,
)

SMALLEST = {"app": {"name": "job"}, "sink": {"path": "/data/orders", "checkpoint": "/data/checkpoint"}}


def parse(changes: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> AppConfig:
    return parse_settings({**SMALLEST, **(changes or {})}, environ or {}, origin="job.toml")


def reasons(changes: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        parse(changes, environ)
    return {problem.option: problem.reason for problem in caught.value.problems}


def test_the_smallest_file_gives_every_other_setting_its_default():
    config = parse()
    assert config.name == "job"
    assert config.source.format == "kafka_follower"
    assert config.source.options == {}
    assert (config.sink.format, config.sink.path, config.sink.partition_by) == (
        "parquet",
        "/data/orders",
        ("arrival_date",),
    )
    assert (config.trigger.mode, config.trigger.interval_ms) == (TriggerMode.PROCESSING_TIME, 10_000)
    assert (config.metrics.host, config.metrics.port) == ("0.0.0.0", 0)
    assert config.stop.timeout_ms == 90_000


def test_the_demo_job_file_can_be_used():
    config = load_settings(Path("conf/demo.toml"), {})
    assert config.source.options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200000",
    }
    assert config.sink.partition_by == ("arrival_date", "malformed")


def test_options_of_the_source_are_spelled_with_dots_or_as_tables_and_become_text():
    options = {"kafka.client.id": "a", "kafka": {"bootstrap": {"servers": "b:9092"}}, "includeHeaders": True, "n": 5}
    assert parse({"source": {"options": options}}).source.options == {
        "kafka.client.id": "a",
        "kafka.bootstrap.servers": "b:9092",
        "includeHeaders": "true",
        "n": "5",
    }


def test_a_variable_overrides_an_option_of_the_file_whatever_its_case():
    environ = {
        "STREAMING_APP_SOURCE_OPTIONS_KAFKA_BOOTSTRAP_SERVERS": "new:9092",
        "STREAMING_APP_SOURCE_OPTIONS_STARTINGOFFSETS": "latest",
        "STREAMING_APP_SOURCE_OPTIONS_KAFKA_CLIENT_ID": "added",
    }
    options = {"kafka.bootstrap.servers": "old:9092", "startingOffsets": "earliest"}
    assert parse({"source": {"options": options}}, environ).source.options == {
        "kafka.bootstrap.servers": "new:9092",
        "startingOffsets": "latest",
        "kafka.client.id": "added",
    }


OVERRIDES = {
    "app.name": ("other", "other"),
    "source.format": ("kafka", "kafka"),
    "sink.format": ("parquet", "parquet"),
    "sink.path": ("/elsewhere", "/elsewhere"),
    "sink.checkpoint": ("/there", "/there"),
    "sink.partition_by": ("malformed, arrival_date", ("malformed", "arrival_date")),
    "trigger.mode": ("available-now", TriggerMode.AVAILABLE_NOW),
    "trigger.interval_ms": ("250", 250),
    "metrics.host": ("127.0.0.1", "127.0.0.1"),
    "metrics.port": ("9400", 9400),
    "stop.timeout_ms": ("5000", 5000),
}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_each_setting_has_a_variable_that_overrides_the_file(setting):
    text, expected = OVERRIDES[setting.name]
    config = parse(environ={setting.variable: text})
    table, _, name = setting.name.partition(".")
    found = config.name if table == "app" else getattr(getattr(config, table), name)
    assert found == expected


def test_all_problems_are_told_at_once():
    found = reasons(
        {
            "app": {},
            "sink": {"format": "parkett", "path": "", "checkpoint": "/c", "partition_by": ["arival_date"]},
            "trigger": {"mode": "available_now", "interval_ms": -1},
            "metrics": {"port": "high", "prot": 1},
            "source": {"options": {"subscribe": ["a", "b"]}},
        },
        {"STREAMING_APP_SINK_PAHT": "x"},
    )
    assert found == {
        "app.name": "is required (or STREAMING_APP_APP_NAME)",
        "sink.format": "must be parquet",
        "sink.path": "must be a text that is not empty",
        "sink.partition_by": "there is no column 'arival_date'; did you mean arrival_date?",
        "trigger.mode": "must be processing-time or available-now",
        "trigger.interval_ms": "must be a whole number from 0 to 86400000",
        "metrics.port": "must be a whole number from 0 to 65535",
        "metrics.prot": "there is no such setting; did you mean metrics.port?",
        "source.options.subscribe": "must be a text, a number or a boolean (JSON goes in a text)",
        "STREAMING_APP_SINK_PAHT": "there is no such variable; did you mean STREAMING_APP_SINK_PATH?",
    }


def test_an_option_that_stands_in_the_wrong_table_is_sent_to_the_right_one():
    assert reasons({"source": {"subscribe": "orders"}}) == {
        "source.subscribe": "there is no such setting; options of the source belong in [source.options]"
    }


@pytest.mark.parametrize("given", [True, 1.5, "1.5", "-3", "x", []])
def test_a_port_that_is_no_whole_number_is_refused(given):
    assert reasons({"metrics": {"port": given}}).keys() == {"metrics.port"}


def test_a_column_can_partition_only_once():
    sink = {**SMALLEST["sink"], "partition_by": ["malformed", "malformed"]}
    assert reasons({"sink": sink}) == {"sink.partition_by": "names a column twice"}


def test_variables_of_others_are_none_of_our_business():
    assert parse(environ={"STREAMING": "x", "PATH": "/bin", "KAFKA_FOLLOWER_METRICS_PORT": "off"}) == parse()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"No such file or directory: .*absent\.toml"):
        load_settings(tmp_path / "absent.toml", {})


@pytest.mark.parametrize("content", [b"[app\nname=1", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"broken.toml can't be used:\n  - --config: is no valid TOML"):
        load_settings(path, {})


def test_options_with_passwords_stay_out_of_the_text_form():
    config = parse({"source": {"options": {"kafka.sasl.jaas.config": "password=hunter2"}}})
    assert "hunter2" not in repr(config)


def test_the_error_survives_a_pickle():
    with pytest.raises(SettingsError) as caught:
        parse({"app": {}})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert str(copy) == "job.toml can't be used:\n  - app.name: is required (or STREAMING_APP_APP_NAME)"
