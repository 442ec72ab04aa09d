from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector.errors import LocalViolation
from connector.model import FetchReply, PartitionReply, TopicPartition
from connector.wire.fetch_reply import decode_reply
from connector.wire.messages import reply_type
from connector.wire.versions import Api
from tests.unit.wire.kio_entities import UNKNOWN_CODE, encode, entities, full_entity, with_unknown_codes

VERSIONS = range(4, 13)


def expected(entity: Any, version: int) -> FetchReply:
    """What kio's entity means in our values."""
    return FetchReply(
        throttle_ms=round(entity.throttle_time.total_seconds() * 1000),
        error_code=int(entity.error_code) if version >= 7 else 0,
        session_id=entity.session_id if version >= 7 else 0,
        partitions=tuple(
            PartitionReply(
                topic_partition=TopicPartition(topic.topic, partition.partition_index),
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
            )
            for topic in entity.responses
            for partition in topic.partitions
        ),
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_reply_reads_as_kio_wrote_it(version, data):
    entity = data.draw(entities(reply_type(Api.FETCH, version)))
    assert decode_reply(encode(entity), version) == expected(entity, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_with_every_field_reads_as_kio_wrote_it(version):
    entity = full_entity(reply_type(Api.FETCH, version))
    reply = decode_reply(encode(entity), version)
    assert reply == expected(entity, version)
    assert len(reply.partitions) == 4
    assert len(reply.partitions[0].aborted_transactions) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_slices_of_the_frame(version):
    payload = encode(full_entity(reply_type(Api.FETCH, version)))
    for partition in decode_reply(payload, version).partitions:
        assert partition.records.obj is payload.obj
        assert bytes(partition.records) == b"records"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, b""], ids=["null", "empty"])
def test_null_and_empty_records_are_an_empty_slice(version, records):
    entity = full_entity(reply_type(Api.FETCH, version))
    partition_type = type(entity.responses[0].partitions[0])
    values = {name: getattr(entity.responses[0].partitions[0], name) for name in partition_type.__slots__}
    partition = partition_type(**{**values, "records": records})
    topic = type(entity.responses[0])(topic="t", partitions=(partition,))
    values = {name: getattr(entity, name) for name in type(entity).__slots__}
    (reply,) = decode_reply(encode(type(entity)(**{**values, "responses": (topic,)})), version).partitions
    assert len(reply.records) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_code_of_the_future_arrives_as_it_is(version):
    entity = with_unknown_codes(full_entity(reply_type(Api.FETCH, version)))
    reply = decode_reply(encode(entity), version)
    assert {partition.error_code for partition in reply.partitions} == {UNKNOWN_CODE}
    assert reply.error_code == (UNKNOWN_CODE if version >= 7 else 0)


@pytest.mark.parametrize("version", [3, 13])
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
