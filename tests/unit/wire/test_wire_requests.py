from __future__ import annotations

import struct
import tomllib
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from connector.errors import LocalViolation
from connector.model import (
    NO_TOPIC_ID,
    EpochQuery,
    FetchPlan,
    ForgottenPartition,
    OffsetQuery,
    PartitionFetch,
    TopicPartition,
)
from connector.wire import (
    api_versions,
    describe_log_dirs,
    fetch_request,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from connector.wire.messages import request_schema
from connector.wire.versions import SUPPORTED, Api


def versions(api: Api) -> range:
    return range(SUPPORTED[api][0], SUPPORTED[api][1] + 1)


def parse(api: Api, version: int, frame: bytes) -> tuple[Any, Any]:
    """Read a request as a broker would, with kio's readers; return header and body."""
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    name = "".join(word.capitalize() for word in api.name.split("_"))
    body_type = getattr(request_schema(api, version), f"{name}Request")
    header, size = entity_reader(body_type.__header_schema__)(frame, 4)
    body, body_size = entity_reader(body_type)(frame, 4 + size)
    assert 4 + size + body_size == len(frame)
    assert (header.request_api_key, header.request_api_version) == (api, version)
    return header, body


FRAME: dict[str, Any] = {"correlation_id": 77, "client_id": "spärk"}


@pytest.mark.parametrize("version", versions(Api.API_VERSIONS))
def test_api_versions_names_the_software_from_version_3_on(version):
    header, body = parse(Api.API_VERSIONS, version, api_versions.encode_request(version=version, **FRAME))
    assert (header.correlation_id, header.client_id) == (77, "spärk")
    if version >= 3:
        assert body.client_software_name == "spark-kafka-follower"
        pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
        assert body.client_software_version == pyproject["project"]["version"]


@pytest.mark.parametrize("version", versions(Api.METADATA))
@pytest.mark.parametrize("topics", [None, (), ("a",), ("b", "a", "ü")], ids=["all", "none", "one", "three"])
def test_metadata_asks_for_topics_and_creates_none(version, topics):
    _, body = parse(Api.METADATA, version, metadata.encode_request(topics, version=version, **FRAME))
    names = None if body.topics is None else tuple(topic.name for topic in body.topics)
    assert names == topics
    assert body.allow_auto_topic_creation is False
    assert all(topic.topic_id is None for topic in body.topics or () if version >= 10)


def timestamp_queries() -> tuple[OffsetQuery, ...]:
    return (
        OffsetQuery(TopicPartition("a", 0), -1, 5),
        OffsetQuery(TopicPartition("b", 3), -2),
        OffsetQuery(TopicPartition("a", 1), 1_700_000_000_000, 6),
    )


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_list_offsets_asks_every_query_once_by_topic(version):
    frame = list_offsets.encode_request(
        timestamp_queries(), isolation_level=1, replica_id=-2, timeout_ms=1234, version=version, **FRAME
    )
    _, body = parse(Api.LIST_OFFSETS, version, frame)
    assert (body.replica_id, body.isolation_level) == (-2, 1)
    assert [topic.name for topic in body.topics] == ["a", "b"]
    asked = [
        (topic.name, partition.partition_index, partition.timestamp)
        for topic in body.topics
        for partition in topic.partitions
    ]
    assert asked == [("a", 0, -1), ("a", 1, 1_700_000_000_000), ("b", 3, -2)]
    if version >= 4:
        epochs = [partition.current_leader_epoch for topic in body.topics for partition in topic.partitions]
        assert epochs == [5, 6, -1]
    if version >= 10:
        assert body.timeout == timedelta(milliseconds=1234)


def test_list_offsets_asks_as_a_consumer_unless_told_otherwise():
    frame = list_offsets.encode_request((), isolation_level=0, version=10, **FRAME)
    assert parse(Api.LIST_OFFSETS, 10, frame)[1].replica_id == -1


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_the_earliest_local_offset_is_asked_for_in_any_version(version):
    frame = list_offsets.encode_request(
        (OffsetQuery(TopicPartition("t", 1), -4),), isolation_level=0, replica_id=-2, version=version, **FRAME
    )
    ((topic,),) = (parse(Api.LIST_OFFSETS, version, frame)[1].topics,)
    assert [(asked.partition_index, asked.timestamp) for asked in topic.partitions] == [(1, -4)]


@pytest.mark.parametrize("version", versions(Api.OFFSET_FOR_LEADER_EPOCH))
def test_ends_of_leader_epochs_are_asked_as_a_consumer_and_once_by_topic(version):
    queries = (
        EpochQuery(TopicPartition("a", 0), 5, 7),
        EpochQuery(TopicPartition("ü", 3), 4),
        EpochQuery(TopicPartition("a", 1), 0, 6),
    )
    _, body = parse(
        Api.OFFSET_FOR_LEADER_EPOCH,
        version,
        offset_for_leader_epoch.encode_request(queries, version=version, **FRAME),
    )
    assert body.replica_id == -1
    assert [topic.topic for topic in body.topics] == ["a", "ü"]
    asked = [
        (topic.topic, each.partition, each.leader_epoch, each.current_leader_epoch)
        for topic in body.topics
        for each in topic.partitions
    ]
    assert asked == [("a", 0, 5, 7), ("a", 1, 0, 6), ("ü", 3, 4, -1)]


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))
def test_log_dirs_are_asked_about_some_topic_partitions_never_about_all(version):
    asked = [TopicPartition("a", 4), TopicPartition("ü", 3), TopicPartition("a", 1)]
    for topic_partitions, topics in ((asked, [("a", (4, 1)), ("ü", (3,))]), ([], [])):
        frame = describe_log_dirs.encode_request(topic_partitions, version=version, **FRAME)
        body = parse(Api.DESCRIBE_LOG_DIRS, version, frame)[1]
        assert body.topics is not None
        assert [(topic.topic, topic.partitions) for topic in body.topics] == topics


topic_partitions = st.builds(TopicPartition, st.sampled_from(("a", "b", "topic-ü")), st.integers(0, 2**31 - 1))
int32 = st.integers(-(2**31), 2**31 - 1)
natural = st.integers(0, 2**31 - 1)
topic_ids = st.sampled_from([UUID(int=number) for number in (1, 2, 2**128 - 1)])
gone = st.lists(st.builds(ForgottenPartition, topic_partitions, topic_ids), max_size=4).map(tuple)
plans = st.builds(
    FetchPlan,
    node_id=natural,
    partitions=st.lists(
        st.builds(PartitionFetch, topic_partitions, st.integers(0, 2**63 - 1), natural, int32, topic_ids), max_size=5
    ).map(tuple),
    rack=st.text(max_size=5),
    max_wait_ms=natural,
    min_bytes=natural,
    max_bytes=natural,
    isolation_level=st.sampled_from((0, 1)),
    session_id=natural,
    session_epoch=int32,
    forgotten=gone,
    replaced=gone,
)


def name_sent(topic: Any, version: int) -> str | UUID:
    """What kio reads a topic to be named by."""
    name: str | UUID = topic.topic_id if version >= 13 else topic.topic
    return name


def name_planned(planned: PartitionFetch | ForgottenPartition, version: int) -> str | UUID:
    """What a topic should be named by."""
    return planned.topic_id if version >= 13 else planned.topic_partition.topic


@pytest.mark.parametrize("version", range(7, 17))
@settings(max_examples=20)
@given(plan=plans)
def test_fetch_carries_the_plan_in_its_order(version, plan):
    _, body = parse(Api.FETCH, version, fetch_request.encode_request(plan, version=version, **FRAME))
    assert (body.replica_id if version < 15 else body.replica_state.replica_id) == -1
    assert body.max_wait == timedelta(milliseconds=plan.max_wait_ms)
    assert (body.min_bytes, body.max_bytes, body.isolation_level) == (
        plan.min_bytes,
        plan.max_bytes,
        plan.isolation_level,
    )
    assert (body.session_id, body.session_epoch) == (plan.session_id, plan.session_epoch)
    asked = [(name_sent(topic, version), partition) for topic in body.topics for partition in topic.partitions]
    assert [
        (name, sent.partition, sent.fetch_offset, sent.partition_max_bytes, sent.log_start_offset)
        for name, sent in asked
    ] == [
        (
            name_planned(wanted, version),
            wanted.topic_partition.partition,
            wanted.fetch_offset,
            wanted.partition_max_bytes,
            -1,
        )
        for wanted in plan.partitions
    ]
    forgotten = [
        (name_sent(topic, version), index) for topic in body.forgotten_topics_data for index in topic.partitions
    ]
    assert forgotten == [
        (name_planned(each, version), each.topic_partition.partition)
        for each in plan.forgotten + (plan.replaced if version >= 13 else ())
    ]
    if version >= 9:
        epochs = [sent.current_leader_epoch for _, sent in asked]
        assert epochs == [wanted.current_leader_epoch for wanted in plan.partitions]
    if version >= 11:
        assert body.rack_id == plan.rack
    if version >= 12:
        assert body.cluster_id is None
        assert all(sent.last_fetched_epoch == -1 for _, sent in asked)


@pytest.mark.parametrize("version", [12, 13])
@settings(max_examples=50)
@given(plan=plans)
def test_neighbours_of_one_topic_share_its_name(version, plan):
    _, body = parse(Api.FETCH, version, fetch_request.encode_request(plan, version=version, **FRAME))
    names = [name for name, _ in groupby(name_planned(wanted, version) for wanted in plan.partitions)]
    assert [name_sent(topic, version) for topic in body.topics] == names


def test_a_replaced_topic_is_forgotten_by_its_old_id_and_never_by_name():
    partition = TopicPartition("t", 2)
    plan = replace(
        SESSIONLESS,
        partitions=(PartitionFetch(partition, 0, 4096, topic_id=UUID(int=2)),),
        session_id=5,
        session_epoch=3,
        replaced=(ForgottenPartition(partition, UUID(int=1)),),
    )
    by_id = parse(Api.FETCH, 13, fetch_request.encode_request(plan, version=13, **FRAME))[1]
    assert [topic.topic_id for topic in by_id.topics] == [UUID(int=2)]
    assert [(topic.topic_id, topic.partitions) for topic in by_id.forgotten_topics_data] == [(UUID(int=1), (2,))]
    by_name = parse(Api.FETCH, 12, fetch_request.encode_request(plan, version=12, **FRAME))[1]
    assert [topic.topic for topic in by_name.topics] == ["t"]
    assert by_name.forgotten_topics_data == ()


SESSIONLESS = FetchPlan(
    node_id=1,
    partitions=(PartitionFetch(TopicPartition("t", 2), 1000, 4096, 9),),
    rack="az-b",
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1 << 20,
    isolation_level=1,
)


@pytest.mark.parametrize("version", [13, 16])
@pytest.mark.parametrize(
    "change",
    [
        {"partitions": (PartitionFetch(TopicPartition("new", 3), 0, 1, topic_id=NO_TOPIC_ID),)},
        {"forgotten": (ForgottenPartition(TopicPartition("new", 3), NO_TOPIC_ID),)},
        {"replaced": (ForgottenPartition(TopicPartition("new", 3), NO_TOPIC_ID),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_topic_without_an_id_in_a_version_with_ids_is_our_own_mistake(version, change):
    with pytest.raises(LocalViolation, match=f"FETCH v{version} .* topic id of new-3 is not known"):
        fetch_request.encode_request(replace(SESSIONLESS, **{"partitions": (), **change}), version=version, **FRAME)


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize(
    "session",
    [(0, -1), (0, 0), (5, 0), (5, -1)],
    ids=["sessionless", "asks for a session", "drops a session for another", "closes a session"],
)
def test_fetch_without_sessions_still_carries_a_full_plan(version, session):
    session_id, session_epoch = session
    plan = replace(SESSIONLESS, session_id=session_id, session_epoch=session_epoch)
    _, body = parse(Api.FETCH, version, fetch_request.encode_request(plan, version=version, **FRAME))
    ((topic,),) = (body.topics,)
    assert (topic.topic, topic.partitions[0].partition, topic.partitions[0].fetch_offset) == ("t", 2, 1000)
    assert body.isolation_level == 1


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize(
    "session",
    [{"session_id": 5, "session_epoch": 1}, {"forgotten": (ForgottenPartition(TopicPartition("t", 1)),)}],
    ids=["incremental", "forgetting"],
)
def test_to_continue_a_session_below_version_7_is_our_own_mistake(version, session):
    with pytest.raises(LocalViolation, match="no sessions"):
        fetch_request.encode_request(replace(SESSIONLESS, **session), version=version, **FRAME)


def test_fetch_11_is_byte_for_byte_what_the_protocol_guide_says():
    body = (
        struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 1, 0, -1)
        + struct.pack(">i", 1)
        + struct.pack(">h1si", 1, b"t", 1)
        + struct.pack(">iiqqi", 2, 9, 1000, -1, 4096)
        + struct.pack(">i", 0)
        + struct.pack(">h4s", 4, b"az-b")
    )
    request = struct.pack(">hhih3s", 1, 11, 77, 3, b"cli") + body
    encoded = fetch_request.encode_request(SESSIONLESS, version=11, correlation_id=77, client_id="cli")
    assert encoded == struct.pack(">i", len(request)) + request


def test_fetch_16_is_byte_for_byte_what_the_protocol_guide_says():
    topic_id, old_id = UUID(int=2**127 + 5), UUID(int=6)
    body = (
        struct.pack(">iiibii", 500, 1, 1 << 20, 1, 77, 8)
        + (b"\x02" + topic_id.bytes + b"\x02" + struct.pack(">iiqiqi", 2, 9, 1000, -1, -1, 4096) + b"\x00" + b"\x00")
        + (b"\x02" + old_id.bytes + b"\x02" + struct.pack(">i", 2) + b"\x00")
        + (b"\x05" + b"az-b")
        + b"\x00"
    )
    request = struct.pack(">hhih3sB", 1, 16, 77, 3, b"cli", 0) + body
    plan = replace(
        SESSIONLESS,
        partitions=(replace(SESSIONLESS.partitions[0], topic_id=topic_id),),
        session_id=77,
        session_epoch=8,
        replaced=(ForgottenPartition(TopicPartition("t", 2), old_id),),
    )
    encoded = fetch_request.encode_request(plan, version=16, correlation_id=77, client_id="cli")
    assert encoded == struct.pack(">i", len(request)) + request


def test_an_offset_that_does_not_fit_is_our_own_mistake():
    partition = PartitionFetch(TopicPartition("t", 0), 2**63, 1)
    plan = FetchPlan(1, (partition,), "", 0, 0, 0)
    with pytest.raises(LocalViolation, match="FETCH v11"):
        fetch_request.encode_request(plan, version=11, **FRAME)


@pytest.mark.parametrize("version", [3, 17])
def test_a_version_that_we_do_not_speak_is_our_own_mistake(version):
    with pytest.raises(LocalViolation, match=f"FETCH version {version}"):
        fetch_request.encode_request(SESSIONLESS, version=version, **FRAME)
