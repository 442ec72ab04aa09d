"""Every option of the source, declared once as data.

Parsing, validation, suggestions for misspelled names and the README's option table all come from these
declarations. Names are Spark's where Spark's own ``kafka`` source has the option, and Kafka's Java client names
behind ``kafka.`` where the setting is the client's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["CLIENT_REFUSALS", "OPTIONS", "SOURCE_REFUSALS", "WITHOUT_EFFECT", "OptionSpec", "option_table"]

OptionKind = Literal["text", "bool", "int", "json", "servers", "choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """One option: its name, how its text is read, and one sentence for people.

    `minimum` and `maximum` bound an int (inclusive). `choices` are compared without regard to case.
    `default` is the text that an absent option stands for; None means "not set".
    """

    name: str
    kind: OptionKind
    default: str | None
    sentence: str
    minimum: int = 0
    maximum: int = 2**63 - 1
    choices: tuple[str, ...] = ()


_INT32_MAX: Final = 2**31 - 1

OPTIONS: Final[tuple[OptionSpec, ...]] = (
    OptionSpec(
        name="kafka.bootstrap.servers",
        kind="servers",
        default=None,
        sentence="Brokers to ask first, `host:port,host:port`. Required.",
    ),
    OptionSpec(
        name="subscribe",
        kind="text",
        default=None,
        sentence="Topics to read, comma-separated. Exactly one of `subscribe` and `assign`.",
    ),
    OptionSpec(
        name="assign",
        kind="json",
        default=None,
        sentence='Topic-partitions to read, `{"topic":[0,1]}`.',
    ),
    OptionSpec(
        name="startingOffsets",
        kind="json",
        default=None,
        sentence=(
            'Where a new query starts: `earliest`, `latest` or `{"topic":{"0":23,"1":-2}}` (-2 earliest, -1 latest). '
            "Default: `latest` for streams, `earliest` for batch."
        ),
    ),
    OptionSpec(
        name="endingOffsets",
        kind="json",
        default=None,
        sentence="Batch only. Where to end: `latest` (default) or JSON as above.",
    ),
    OptionSpec(
        name="maxOffsetsPerTrigger",
        kind="int",
        default=None,
        minimum=1,
        sentence="Most offsets in one micro-batch, shared out by backlog.",
    ),
    OptionSpec(
        name="failOnDataLoss",
        kind="bool",
        default="true",
        sentence="Fail when planned offsets are gone. `false`: go on; what is skipped is logged and counted.",
    ),
    OptionSpec(
        name="includeHeaders",
        kind="bool",
        default="false",
        sentence="Add the `headers` column.",
    ),
    OptionSpec(
        name="kafkaConsumer.pollTimeoutMs",
        kind="int",
        default="120000",
        minimum=1,
        sentence="How long a range may stay without progress, whatever is tried, before its task fails.",
    ),
    OptionSpec(
        name="rack",
        kind="text",
        default=None,
        sentence="One rack for the whole query. Default: each executor's own (`KAFKA_CLIENT_RACK`).",
    ),
    OptionSpec(
        name="replicaSelection",
        kind="choice",
        default="broker",
        choices=("broker", "client", "leader"),
        sentence=(
            "`broker`: the leader names the replica to read (KIP-392). `client`: an in-sync replica in our rack, by "
            "metadata; needs no `replica.selector.class`. `leader`: read leaders only."
        ),
    ),
    OptionSpec(
        name="localLogMs",
        kind="int",
        default="0",
        sentence="With `client`: replicas whose local log spans less time rank last in their rack; 0: any.",
    ),
    OptionSpec(
        name="localLogBytes",
        kind="int",
        default="0",
        sentence="With `client`: replicas whose local log is smaller rank last, unless it spans `localLogMs`; 0: any.",
    ),
    OptionSpec(
        name="sessions",
        kind="choice",
        default="auto",
        choices=("auto", "always", "never"),
        sentence="Fetch sessions (KIP-227). `auto`: where a read asks a broker more than once for several partitions.",
    ),
    OptionSpec(
        name="followerWaitMs",
        kind="int",
        default="700",
        maximum=_INT32_MAX,
        sentence="How long to wait for a follower that does not yet show planned offsets; 0: leader at once.",
    ),
    OptionSpec(
        name="strictOptions",
        kind="bool",
        default="false",
        sentence="Make unknown options an error instead of a warning.",
    ),
    OptionSpec(
        name="kafka.client.rack",
        kind="text",
        default=None,
        sentence="Rack for executors that know none of their own.",
    ),
    OptionSpec(
        name="kafka.client.id",
        kind="text",
        default="kafka-follower",
        sentence="Name the brokers see in their logs and quotas.",
    ),
    OptionSpec(
        name="kafka.isolation.level",
        kind="choice",
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        sentence="`read_committed`: records of open and aborted transactions are left out.",
    ),
    OptionSpec(
        name="kafka.security.protocol",
        kind="choice",
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        sentence="Only `PLAINTEXT`; the others are refused.",
    ),
    OptionSpec(
        name="kafka.fetch.max.bytes",
        kind="int",
        default="52428800",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="Most record bytes in one Fetch answer.",
    ),
    OptionSpec(
        name="kafka.max.partition.fetch.bytes",
        kind="int",
        default="4194304",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="Most record bytes of one topic-partition in one Fetch answer; a larger record batch still arrives.",
    ),
    OptionSpec(
        name="kafka.fetch.max.wait.ms",
        kind="int",
        default="500",
        maximum=_INT32_MAX,
        sentence="How long a broker may hold a Fetch that has nothing to return.",
    ),
    OptionSpec(
        name="kafka.fetch.min.bytes",
        kind="int",
        default="1",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="Least bytes a broker waits for, within `kafka.fetch.max.wait.ms`.",
    ),
    OptionSpec(
        name="kafka.request.timeout.ms",
        kind="int",
        default="30000",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="How long to wait for an answer before the connection is given up.",
    ),
    OptionSpec(
        name="kafka.socket.connection.setup.timeout.ms",
        kind="int",
        default="10000",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="How long to wait for a connection.",
    ),
    OptionSpec(
        name="kafka.receive.buffer.bytes",
        kind="int",
        default="-1",
        minimum=-1,
        maximum=_INT32_MAX,
        sentence="Socket receive buffer; -1 leaves it to the operating system.",
    ),
    OptionSpec(
        name="kafka.metadata.max.age.ms",
        kind="int",
        default="300000",
        minimum=1,
        sentence="How long leaders, replicas and a preferred read replica are believed before asking again.",
    ),
    OptionSpec(
        name="kafka.retry.backoff.ms",
        kind="int",
        default="100",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="First pause before a retry; doubles with each failure in a row.",
    ),
    OptionSpec(
        name="kafka.retry.backoff.max.ms",
        kind="int",
        default="1000",
        minimum=1,
        maximum=_INT32_MAX,
        sentence="Longest pause before a retry.",
    ),
)

_RESET: Final = (
    "offsets come from startingOffsets and Spark's checkpoint; use startingOffsets instead, or failOnDataLoss"
)
_BYTES: Final = "keys and values are always binary; convert them with DataFrame functions"

CLIENT_REFUSALS: Final[dict[str, str]] = {
    "kafka.auto.offset.reset": _RESET,
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.enable.auto.commit": "the source commits no offsets to Kafka; Spark's checkpoint holds them",
    "kafka.interceptor.classes": "there is no Java consumer whose records an interceptor could see",
}
"""Client settings that Spark's own source refuses too (`KafkaSourceProvider`), and why."""

SOURCE_REFUSALS: Final[dict[str, str]] = {
    name: f"not supported; {instead}"
    for name, instead in {
        "subscribePattern": "name the topics with subscribe",
        "startingTimestamp": "use startingOffsets",
        "startingOffsetsByTimestamp": "use startingOffsets",
        "endingTimestamp": "use endingOffsets",
        "endingOffsetsByTimestamp": "use endingOffsets",
    }.items()
}
"""Options of Spark's own source that choose rows: ignoring one would read other rows than asked for."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "maxRecordsPerPartition",
        "maxTriggerDelay",
        "minOffsetsPerTrigger",
        "minPartitions",
        "startingOffsetsByTimestampStrategy",
        "kafka.allow.auto.create.topics",
        "kafka.auto.commit.interval.ms",
        "kafka.check.crcs",
        "kafka.client.dns.lookup",
        "kafka.connections.max.idle.ms",
        "kafka.default.api.timeout.ms",
        "kafka.enable.metrics.push",
        "kafka.exclude.internal.topics",
        "kafka.group.id",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.heartbeat.interval.ms",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
        "kafka.metadata.recovery.strategy",
        "kafka.metric.reporters",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.partition.assignment.strategy",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.security.providers",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
        "kafka.socket.connection.setup.timeout.max.ms",
    }
)
"""Options of Spark's own source and of the Java consumer that change no row here: a warning each, never an error."""


def option_table() -> str:
    """Return the options as a Markdown table, for the README."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for spec in OPTIONS:
        default = "" if spec.default is None else f"`{spec.default}`"
        rows.append(f"| `{spec.name}` | {default} | {spec.sentence} |")
    return "\n".join(rows)
