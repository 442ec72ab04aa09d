from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector.errors import LocalViolation, RemoteViolation
from connector.model import NO_TOPIC_ID, FetchReply, Node, PartitionReply, TopicPartition
from connector.wire.fetch_reply import decode_reply
from connector.wire.messages import reply_type
from connector.wire.versions import Api
from tests.unit.wire.kio_entities import (
    FULL_TOPIC_ID,
    UNKNOWN_CODE,
    encode,
    entities,
    full_entity,
    with_unknown_codes,
)

VERSIONS = range(4, 17)
FULL_NAMES = {FULL_TOPIC_ID: "näme"}


def id_of(topic: Any, version: int) -> UUID:
    return topic.topic_id or NO_TOPIC_ID if version >= 13 else NO_TOPIC_ID


def expected(entity: Any, version: int, names: Mapping[UUID, str]) -> FetchReply:
    """What kio's entity means in our values."""
    known = [topic for topic in entity.responses if version < 13 or id_of(topic, version) in names]
    return FetchReply(
        throttle_ms=round(entity.throttle_time.total_seconds() * 1000),
        error_code=int(entity.error_code) if version >= 7 else 0,
        session_id=entity.session_id if version >= 7 else 0,
        partitions=tuple(
            PartitionReply(
                topic_partition=TopicPartition(
                    names[topic.topic_id] if version >= 13 else topic.topic, partition.partition_index
                ),
                error_code=int(partition.error_code),
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=partition.log_start_offset if version >= 5 else -1,
                preferred_read_replica=partition.preferred_read_replica if version >= 11 else -1,
                records=memoryview(partition.records or b""),
                current_leader_id=partition.current_leader.leader_id if version >= 12 else -1,
                current_leader_epoch=partition.current_leader.leader_epoch if version >= 12 else -1,
                diverging_epoch=partition.diverging_epoch.epoch if version >= 12 else -1,
                diverging_end_offset=partition.diverging_epoch.end_offset if version >= 12 else -1,
                aborted_transactions=tuple(
                    (aborted.producer_id, aborted.first_offset) for aborted in partition.aborted_transactions or ()
                ),
                topic_id=id_of(topic, version),
            )
            for topic in known
            for partition in topic.partitions
        ),
        nodes=tuple(Node(node.node_id, node.host, node.port, node.rack) for node in entity.node_endpoints)
        if version >= 16
        else (),
        unknown_topic_ids=tuple(
            dict.fromkeys(id_of(topic, version) for topic in entity.responses if topic not in known)
        ),
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_reply_reads_as_kio_wrote_it(version, data):
    entity = data.draw(entities(reply_type(Api.FETCH, version)))
    topic_ids = {topic.topic_id for topic in entity.responses if version >= 13 and topic.topic_id}
    names = {topic_id: f"topic {topic_id}" for topic_id in topic_ids if data.draw(st.booleans())}
    assert decode_reply(encode(entity), version, names) == expected(entity, version, names)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_with_every_field_reads_as_kio_wrote_it(version):
    entity = full_entity(reply_type(Api.FETCH, version))
    reply = decode_reply(encode(entity), version, FULL_NAMES)
    assert reply == expected(entity, version, FULL_NAMES)
    assert len(reply.partitions) == 4
    assert len(reply.partitions[0].aborted_transactions) == 2
    assert reply.partitions[0].topic_partition.topic == "näme"
    assert len(reply.nodes) == (2 if version >= 16 else 0)


@pytest.mark.parametrize("version", [13, 16])
def test_topics_of_unknown_id_are_left_out_and_told_once(version):
    entity = full_entity(reply_type(Api.FETCH, version))
    a, b, deleted, older = (UUID(int=number) for number in (1, 2, 8, 9))
    answered = [replace(entity.responses[0], topic_id=topic_id) for topic_id in (deleted, a, older, b, deleted, a)]
    reply = decode_reply(encode(replace(entity, responses=tuple(answered))), version, {a: "a", b: "b"})
    told = [(each.topic_partition.topic, each.topic_id) for each in reply.partitions]
    assert told == [("a", a)] * 2 + [("b", b)] * 2 + [("a", a)] * 2
    assert reply.unknown_topic_ids == (deleted, older)


@pytest.mark.parametrize("version", [13, 16])
def test_without_names_every_topic_is_unknown(version):
    entity = full_entity(reply_type(Api.FETCH, version))
    without_id = replace(entity.responses[0], topic_id=None)
    reply = decode_reply(encode(replace(entity, responses=(without_id, *entity.responses))), version)
    assert reply.partitions == ()
    assert reply.unknown_topic_ids == (NO_TOPIC_ID, FULL_TOPIC_ID)


@pytest.mark.parametrize("rack", [None, "", "az-a"], ids=["no rack", "empty rack", "rack"])
def test_the_address_of_a_current_leader_is_told_with_its_rack(rack):
    entity = full_entity(reply_type(Api.FETCH, 16))
    endpoint = replace(entity.node_endpoints[0], node_id=4, host="broker-4", port=9092, rack=rack)
    reply = decode_reply(encode(replace(entity, node_endpoints=(endpoint,))), 16)
    assert reply.nodes == (Node(4, "broker-4", 9092, rack),)


def with_node_endpoints(size_bytes: int = 13, more_fields: tuple[bytes, ...] = ()) -> memoryview:
    """A reply without topics whose node endpoints, of 13 bytes, claim `size_bytes`; tagged fields may follow."""
    node = b"\x00\x00\x00\x04" + b"\x02h" + b"\x00\x00\x23\x84" + b"\x00" + b"\x00"
    endpoints = b"\x00" + bytes((size_bytes,)) + b"\x02" + node
    fields = (endpoints, *more_fields)
    return memoryview(bytes(11) + b"\x01" + bytes((len(fields),)) + b"".join(fields) + bytes(20))


def test_node_endpoints_end_where_they_say():
    assert decode_reply(with_node_endpoints(), 16).nodes == (Node(4, "h", 9092),)
    for size_bytes in (0, 1, 12, 14):
        with pytest.raises(RemoteViolation, match=f"tagged field 0 should end at byte {15 + size_bytes}"):
            decode_reply(with_node_endpoints(size_bytes), 16)


def test_unknown_tagged_fields_beside_node_endpoints_are_stepped_over():
    unknown = (b"\x05\x05" + b"\xff" * 5, b"\x06\x01\xff")
    payload = with_node_endpoints(more_fields=unknown)
    assert decode_reply(payload, 16).nodes == (Node(4, "h", 9092),)
    with pytest.raises(RemoteViolation, match="tagged field 6 of 1 bytes in the last 0"):
        decode_reply(payload[:-21], 16)


@pytest.mark.parametrize("version", [12, 13, 15])
def test_before_version_16_no_tagged_field_holds_node_endpoints(version):
    assert decode_reply(with_node_endpoints(), version).nodes == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_slices_of_the_frame(version):
    payload = encode(full_entity(reply_type(Api.FETCH, version)))
    partitions = decode_reply(payload, version, FULL_NAMES).partitions
    assert len(partitions) == 4
    for partition in partitions:
        assert partition.records.obj is payload.obj
        assert bytes(partition.records) == b"records"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, b""], ids=["null", "empty"])
def test_null_and_empty_records_are_an_empty_slice(version, records):
    entity = full_entity(reply_type(Api.FETCH, version))
    partition = replace(entity.responses[0].partitions[0], records=records)
    topic = replace(entity.responses[0], partitions=(partition,))
    (reply,) = decode_reply(encode(replace(entity, responses=(topic,))), version, FULL_NAMES).partitions
    assert len(reply.records) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_code_of_the_future_arrives_as_it_is(version):
    entity = with_unknown_codes(full_entity(reply_type(Api.FETCH, version)))
    reply = decode_reply(encode(entity), version, FULL_NAMES)
    assert {partition.error_code for partition in reply.partitions} == {UNKNOWN_CODE}
    assert reply.error_code == (UNKNOWN_CODE if version >= 7 else 0)


@pytest.mark.parametrize("version", [3, 17])
def test_a_version_that_we_do_not_read_is_our_own_mistake(version):
    with pytest.raises(LocalViolation, match=f"FETCH version {version}"):
        decode_reply(memoryview(bytes(100)), version)


def test_a_short_known_tagged_field_does_not_read_into_the_next_one():
    head = bytes((0,)) + bytes(10) + bytes((2, 2)) + b"t" + bytes((2,))
    partition = bytes(30) + bytes((0,)) + bytes(4) + bytes((0,))
    shortened = bytes((1, 1, 7)) + bytes(7)
    with pytest.raises(Exception, match=r"7 bytes should have 8") as raised:
        decode_reply(memoryview(head + partition + shortened + bytes(20)), 12)
    assert type(raised.value).__name__ == "RemoteViolation"


def test_reading_a_fetch_reply_imports_neither_kio_nor_asyncio():
    code = (
        "import sys, connector.wire.fetch_reply as reply\n"
        "reply.decode_reply(memoryview(bytes(8)), 4)\n"
        "print(sorted({'kio', 'asyncio', 'ssl', 'socket', 'hypothesis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
