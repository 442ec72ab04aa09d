"""A job file (``conf/*.toml``), then environment variables → one frozen `AppConfig`, or every problem at once.

Every setting has one dotted name, for example ``sink.path``. In the file it stands in the table ``[sink]``; the
environment variable ``STREAMING_APP_SINK_PATH`` overrides it. Options of the source are open: whatever stands in
``[source.options]`` goes to Spark as it is, and ``STREAMING_APP_SOURCE_OPTIONS_KAFKA_BOOTSTRAP_SERVERS`` overrides
``kafka.bootstrap.servers`` (an underscore stands for a dot; Spark compares option names without regard to case).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from connector.errors import ConfigError, ConfigProblem
from streaming_app.orders import OUTPUT_COLUMNS

__all__ = [
    "ENVIRONMENT_PREFIX",
    "SETTINGS",
    "AppConfig",
    "MetricsConfig",
    "SettingsError",
    "SinkConfig",
    "SourceConfig",
    "StopConfig",
    "TriggerConfig",
    "TriggerMode",
    "load_settings",
    "parse_settings",
]

ENVIRONMENT_PREFIX: Final = "STREAMING_APP_"
_OPTIONS: Final = "source.options"
_OPTIONS_PREFIX: Final = f"{ENVIRONMENT_PREFIX}SOURCE_OPTIONS_"


class SettingsError(ConfigError):
    """The job file, or a variable that overrides it, can't be used. All problems are listed at once."""

    def __init__(self, origin: str, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__(problems)
        self.args = (origin, problems)
        self.origin = origin

    def __str__(self) -> str:
        """Return which file it is, then the problems, one a line."""
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"{self.origin} can't be used:\n{lines}"


class TriggerMode(StrEnum):
    """When micro-batches run."""

    PROCESSING_TIME = "processing-time"
    AVAILABLE_NOW = "available-now"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """What is read. `options` may hold passwords, so it stays out of the text form."""

    format: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """Where rows go."""

    format: str
    path: str
    checkpoint: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerConfig:
    """When micro-batches run; `interval_ms` counts under ``processing-time`` alone."""

    mode: TriggerMode
    interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where the driver serves ``/metrics``; port 0 means any free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConfig:
    """How long a graceful stop waits for the micro-batch that runs."""

    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """One job, complete and checked."""

    name: str
    source: SourceConfig
    sink: SinkConfig
    trigger: TriggerConfig
    metrics: MetricsConfig
    stop: StopConfig


def _text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError("must be a text that is not empty")
    return given.strip()


def _integer(minimum: int, maximum: int) -> Callable[[object], int]:
    reason = f"must be a whole number from {minimum} to {maximum}"

    def read(given: object) -> int:
        is_number = isinstance(given, int) and not isinstance(given, bool)
        is_digits = isinstance(given, str) and given.strip().isdecimal()
        if not (is_number or is_digits):
            raise ValueError(reason)
        number = int(str(given))
        if not minimum <= number <= maximum:
            raise ValueError(reason)
        return number

    return read


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(given: object) -> str:
        if given not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return str(given)

    return read


def _columns(given: object) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("must be a list of column names")
    columns = tuple(name.strip() for name in names if name.strip())
    for column in columns:
        if column not in OUTPUT_COLUMNS:
            raise ValueError(f"there is no column {column!r}{_suggest(column, OUTPUT_COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise ValueError("names a column twice")
    return columns


def _trigger_mode(given: object) -> TriggerMode:
    return TriggerMode(_one_of(*TriggerMode)(given))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its dotted name, how its value is read, and what an absent one stands for (None: required)."""

    name: str
    read: Callable[[object], Any]
    default: object = None

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace(".", "_")


SETTINGS: Final = (
    Setting("app.name", _text),
    Setting("source.format", _text, "kafka_follower"),
    Setting("sink.format", _one_of("parquet"), "parquet"),
    Setting("sink.path", _text),
    Setting("sink.checkpoint", _text),
    Setting("sink.partition_by", _columns, ["arrival_date"]),
    Setting("trigger.mode", _trigger_mode, TriggerMode.PROCESSING_TIME),
    Setting("trigger.interval_ms", _integer(0, 86_400_000), 10_000),
    Setting("metrics.host", _text, "0.0.0.0"),  # noqa: S104 - a scraper reaches the driver from another machine
    Setting("metrics.port", _integer(0, 65_535), 0),
    Setting("stop.timeout_ms", _integer(1_000, 3_600_000), 90_000),
)
_NAMES: Final = tuple(setting.name for setting in SETTINGS)


def load_settings(path: Path, environ: Mapping[str, str]) -> AppConfig:
    """Read a job file and the variables that override it.

    Raises
    ------
    SettingsError
        The file can't be read or is no TOML, or its content can't be used.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(str(path), (ConfigProblem("--config", None, f"{error.strerror}: {path}"),)) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both ValueErrors
        raise SettingsError(str(path), (ConfigProblem("--config", None, f"is no valid TOML: {error}"),)) from error
    return parse_settings(document, environ, origin=str(path))


def parse_settings(document: Mapping[str, Any], environ: Mapping[str, str], *, origin: str) -> AppConfig:
    """Check the content of a job file and of the variables that override it.

    Raises
    ------
    SettingsError
        With every problem found, not only the first.
    """
    problems: list[ConfigProblem] = []
    options, given = _split_options(document, problems)
    _override(options, given, environ, problems)
    values = {setting.name: _read(setting, given, problems) for setting in SETTINGS}
    problems += [ConfigProblem(name, None, _unknown(name)) for name in given if name not in _NAMES]
    if problems:
        raise SettingsError(origin, tuple(problems))
    return AppConfig(
        name=values["app.name"],
        source=SourceConfig(options=options, **_table(values, "source")),
        sink=SinkConfig(**_table(values, "sink")),
        trigger=TriggerConfig(**_table(values, "trigger")),
        metrics=MetricsConfig(**_table(values, "metrics")),
        stop=StopConfig(**_table(values, "stop")),
    )


def _table(values: Mapping[str, Any], table: str) -> dict[str, Any]:
    return {name.removeprefix(f"{table}."): value for name, value in values.items() if name.startswith(f"{table}.")}


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _split_options(
    document: Mapping[str, Any], problems: list[ConfigProblem]
) -> tuple[dict[str, str], dict[str, object]]:
    options: dict[str, str] = {}
    given: dict[str, object] = {}
    for name, value in _flatten(document):
        if not name.startswith(f"{_OPTIONS}."):
            given[name] = value
        elif isinstance(value, bool):
            options[name.removeprefix(f"{_OPTIONS}.")] = str(value).lower()
        elif isinstance(value, str | int | float):
            options[name.removeprefix(f"{_OPTIONS}.")] = str(value)
        else:
            problems.append(ConfigProblem(name, None, "must be a text, a number or a boolean (JSON goes in a text)"))
    return options, given


def _override(
    options: dict[str, str],
    given: dict[str, object],
    environ: Mapping[str, str],
    problems: list[ConfigProblem],
) -> None:
    names = {setting.variable: setting.name for setting in SETTINGS}
    spelled = {name.lower(): name for name in options}
    for variable in sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX)):
        if variable in names:
            given[names[variable]] = environ[variable]
        elif variable.startswith(_OPTIONS_PREFIX):
            option = variable.removeprefix(_OPTIONS_PREFIX).lower().replace("_", ".")
            options[spelled.get(option, option)] = environ[variable]
        else:
            reason = f"there is no such variable{_suggest(variable, names)}"
            problems.append(ConfigProblem(variable, None, reason))


def _read(setting: Setting, given: Mapping[str, object], problems: list[ConfigProblem]) -> Any:  # noqa: ANN401 - as declared
    value = given.get(setting.name, setting.default)
    if value is None:
        problems.append(ConfigProblem(setting.name, None, f"is required (or {setting.variable})"))
        return None
    try:
        return setting.read(value)
    except ValueError as error:
        problems.append(ConfigProblem(setting.name, str(value), str(error)))
        return None


def _unknown(name: str) -> str:
    suggestion = _suggest(name, _NAMES)
    if not suggestion and name.startswith("source."):
        suggestion = f"; options of the source belong in [{_OPTIONS}]"
    return f"there is no such setting{suggestion}"


def _suggest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
