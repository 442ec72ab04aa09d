from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from connector.errors import RemoteViolation
from connector.model import EpochAnswer, LogDirSize, Node, OffsetAnswer, PartitionInfo, TopicPartition
from connector.wire import api_versions, describe_log_dirs, list_offsets, metadata, offset_for_leader_epoch
from connector.wire.api_versions import ApiVersionsReply
from connector.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, UNSUPPORTED_VERSION
from connector.wire.messages import reply_type
from connector.wire.versions import SUPPORTED, Api
from tests.unit.wire.kio_entities import encode, entities, full_entity


def versions(api: Api) -> range:
    return range(SUPPORTED[api][0], SUPPORTED[api][1] + 1)


random_replies = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])


def changed(entity: Any, **values: Any) -> Any:
    return type(entity)(**{**{name: getattr(entity, name) for name in type(entity).__slots__}, **values})


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
@random_replies
@given(data=st.data())
def test_list_offsets_reads_as_kio_wrote_it(version, data):
    entity = data.draw(entities(reply_type(Api.LIST_OFFSETS, version)))
    assert list_offsets.decode_reply(encode(entity), version) == tuple(
        OffsetAnswer(
            TopicPartition(topic.name, partition.partition_index),
            int(partition.error_code),
            partition.offset,
            partition.timestamp,
            partition.leader_epoch if version >= 4 else -1,
        )
        for topic in entity.topics
        for partition in topic.partitions
    )


@pytest.mark.parametrize("version", [2, 7])
def test_an_old_brokers_refusal_of_the_earliest_local_offset_reads_as_an_answer(version):
    entity = full_entity(reply_type(Api.LIST_OFFSETS, version))
    refused = replace(entity.topics[0].partitions[0], error_code=ErrorCode.unsupported_version, offset=-1, timestamp=-1)
    entity = replace(entity, topics=(replace(entity.topics[0], partitions=(refused,)),))
    (answer,) = list_offsets.decode_reply(encode(entity), version)
    assert (answer.error_code, answer.log_offset) == (UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", versions(Api.OFFSET_FOR_LEADER_EPOCH))
@random_replies
@given(data=st.data())
def test_ends_of_leader_epochs_read_as_kio_wrote_them(version, data):
    entity = data.draw(entities(reply_type(Api.OFFSET_FOR_LEADER_EPOCH, version)))
    assert offset_for_leader_epoch.decode_reply(encode(entity), version) == tuple(
        EpochAnswer(
            TopicPartition(topic.topic, partition.partition),
            int(partition.error_code),
            partition.leader_epoch,
            partition.end_offset,
        )
        for topic in entity.topics
        for partition in topic.partitions
    )


def log_dir(version: int, *sizes: tuple[str, int, int], is_future: bool = False, code: int = 0) -> Any:
    """One of kio's log dirs, with (topic, partition, bytes) in it."""
    result = full_entity(reply_type(Api.DESCRIBE_LOG_DIRS, version)).results[0]
    partition = replace(result.topics[0].partitions[0], is_future_key=is_future)
    return replace(
        result,
        error_code=ErrorCode(code),
        topics=tuple(
            replace(
                result.topics[0],
                name=name,
                partitions=(replace(partition, partition_index=index, partition_size=size_bytes),),
            )
            for name, index, size_bytes in sizes
        ),
    )


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))
def test_sizes_are_summed_up_over_sound_log_dirs_without_future_replicas(version):
    entity = replace(
        full_entity(reply_type(Api.DESCRIBE_LOG_DIRS, version)),
        results=(
            log_dir(version, ("a", 0, 10), ("b", 0, 0), ("a", 1, 2**40)),
            log_dir(version, ("a", 0, 5), ("b", 0, 7), is_future=True),
            log_dir(version, ("c", 0, 3), ("a", 0, 100), code=KAFKA_STORAGE_ERROR),
            log_dir(version),
            log_dir(version, ("a", 0, 20), ("d", 3, 4)),
        ),
    )
    assert describe_log_dirs.decode_reply(encode(entity), version) == (
        LogDirSize(TopicPartition("a", 0), 30),
        LogDirSize(TopicPartition("b", 0), 0),
        LogDirSize(TopicPartition("a", 1), 2**40),
        LogDirSize(TopicPartition("d", 3), 4),
    )


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))
def test_without_rights_on_the_cluster_no_size_is_known_and_nothing_fails(version):
    refused: dict[str, Any] = {"results": ()}
    if version >= 3:
        refused = {
            "error_code": ErrorCode(CLUSTER_AUTHORIZATION_FAILED),
            "results": (log_dir(version, ("a", 0, 10)),),
        }
    entity = replace(full_entity(reply_type(Api.DESCRIBE_LOG_DIRS, version)), **refused)
    assert describe_log_dirs.decode_reply(encode(entity), version) == ()


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))
@random_replies
@given(data=st.data())
def test_log_dirs_read_as_kio_wrote_them(version, data):
    entity = data.draw(entities(reply_type(Api.DESCRIBE_LOG_DIRS, version)))
    sound = replace(
        entity,
        results=tuple(replace(each, error_code=ErrorCode.none) for each in entity.results),
        **({"error_code": ErrorCode.none} if version >= 3 else {}),
    )
    told = [
        (TopicPartition(topic.name, partition.partition_index), partition.partition_size)
        for each in sound.results
        for topic in each.topics
        for partition in topic.partitions
        if not partition.is_future_key
    ]
    assert describe_log_dirs.decode_reply(encode(sound), version) == tuple(
        LogDirSize(name, sum(size_bytes for each, size_bytes in told if each == name))
        for name in dict.fromkeys(name for name, _ in told)
    )


def expected_partitions(entity: Any, version: int) -> dict[TopicPartition, PartitionInfo]:
    return {
        TopicPartition(topic.name, partition.partition_index): PartitionInfo(
            TopicPartition(topic.name, partition.partition_index),
            int(partition.error_code),
            partition.leader_id,
            partition.leader_epoch if version >= 9 else -1,
            partition.replica_nodes,
            partition.isr_nodes,
            partition.offline_replicas if version >= 5 else (),
        )
        for topic in entity.topics
        if topic.error_code == ErrorCode.none
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(Api.METADATA))
@random_replies
@given(data=st.data())
def test_metadata_reads_as_kio_wrote_it(version, data):
    entity = data.draw(entities(reply_type(Api.METADATA, version)))
    topics = tuple(
        changed(topic, name=f"topic-{index}", error_code=data.draw(st.sampled_from((ErrorCode.none, topic.error_code))))
        for index, topic in enumerate(entity.topics)
    )
    entity = changed(entity, topics=topics)
    view = metadata.decode_reply(encode(entity), version)
    assert view.nodes == {
        broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in entity.brokers
    }
    assert view.partitions == expected_partitions(entity, version)
    assert view.topic_errors == {
        topic.name: int(topic.error_code) for topic in topics if topic.error_code != ErrorCode.none
    }
    assert view.topic_ids == {
        topic.name: topic.topic_id
        for topic in topics
        if version >= 10 and topic.topic_id is not None and topic.error_code == ErrorCode.none
    }
    assert view.internal_topics == {topic.name for topic in topics if topic.is_internal}
    assert view.cluster_id == entity.cluster_id


@pytest.mark.parametrize("version", versions(Api.METADATA))
def test_metadata_hands_out_plain_values(version):
    view = metadata.decode_reply(encode(full_entity(reply_type(Api.METADATA, version))), version)
    (info,) = view.partitions.values()
    (node,) = view.nodes.values()
    assert {type(value) for value in (info.error_code, info.leader_id, *info.replica_ids, node.node_id)} == {int}
    assert node.rack == "näme"
    assert view.topic_ids == ({"näme": UUID(int=7)} if version >= 10 else {})


def test_a_topic_without_a_name_is_refused_because_none_was_asked_by_id():
    entity = full_entity(reply_type(Api.METADATA, 12))
    nameless = changed(entity.topics[0], name=None, error_code=ErrorCode.unknown_topic_id)
    with pytest.raises(RemoteViolation, match="without a name"):
        metadata.decode_reply(encode(changed(entity, topics=(nameless,))), 12)


@pytest.mark.parametrize("version", versions(Api.API_VERSIONS))
@random_replies
@given(data=st.data())
def test_api_versions_reads_as_kio_wrote_it(version, data):
    entity = data.draw(entities(reply_type(Api.API_VERSIONS, version)))
    code = data.draw(st.sampled_from([code for code in ErrorCode if code != ErrorCode.unsupported_version]))
    assert api_versions.decode_reply(encode(changed(entity, error_code=code)), version) == ApiVersionsReply(
        int(code), {offered.api_key: (offered.min_version, offered.max_version) for offered in entity.api_keys}
    )


@pytest.mark.parametrize("version", versions(Api.API_VERSIONS))
@pytest.mark.parametrize("ranges", [{}, {18: (0, 2)}, {1: (0, 11), 18: (0, 2)}], ids=["none", "its own", "more"])
def test_a_refused_version_is_answered_in_version_0_whatever_was_asked(version, ranges):
    answer: Any = reply_type(Api.API_VERSIONS, 0)
    offered_type = answer.__annotations__["api_keys"].__args__[0]
    entity = answer(
        error_code=ErrorCode.unsupported_version,
        api_keys=tuple(
            offered_type(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in ranges.items()
        ),
    )
    assert api_versions.decode_reply(encode(entity), version) == ApiVersionsReply(35, ranges)


@pytest.mark.parametrize("version", versions(Api.API_VERSIONS))
def test_a_refusal_in_the_version_that_was_asked_is_read_too(version):
    entity = changed(full_entity(reply_type(Api.API_VERSIONS, version)), error_code=ErrorCode.unsupported_version)
    assert api_versions.decode_reply(encode(entity), version) == ApiVersionsReply(35, {3: (3, 3)})


def test_the_refusal_of_librdkafkas_mock_broker_is_read_as_one_without_ranges():
    from_librdkafka_2_16 = memoryview(bytes.fromhex("0023 01 0012 0000 0002 00000000"))
    assert api_versions.decode_reply(from_librdkafka_2_16, 3) == ApiVersionsReply(35, {})


@pytest.mark.parametrize("version", versions(Api.API_VERSIONS))
def test_a_refusal_that_is_cut_off_is_a_violation(version):
    for end in range(6):
        with pytest.raises(RemoteViolation):
            api_versions.decode_reply(memoryview(b"\x00\x23" + bytes(4))[:end], version)
