from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.errors import LocalViolation, RemoteViolation
from connector.wire import describe_log_dirs, list_offsets, messages, metadata, offset_for_leader_epoch
from connector.wire.bounds import Edit, apply_edits, find_edits
from connector.wire.cursor import Cursor
from connector.wire.messages import reply_type
from connector.wire.versions import Api
from tests.unit.wire.kio_entities import (
    COMPACT_MARKER,
    DECODERS,
    LEGACY_MARKER,
    REPLIES,
    announcing_entities,
    damaged,
    encode,
    full_entity,
    full_payload,
    with_unknown_codes,
    with_unknown_tags,
)

every_reply = pytest.mark.parametrize(("api", "version"), REPLIES, ids=lambda part: getattr(part, "name", part))


def violation_of(api: Api, version: int, payload: memoryview) -> str | None:
    """Decode; any other exception than a violation fails the test."""
    try:
        DECODERS[api](payload, version)
    except RemoteViolation as error:
        return str(error)
    return None


@every_reply
def test_a_reply_that_is_cut_off_anywhere_is_refused(api, version):
    payload = full_payload(api, version)
    for end in range(len(payload)):
        with pytest.raises(RemoteViolation) as raised:
            DECODERS[api](payload[:end], version)
        assert f"{api.name} v{version}" in str(raised.value)
        assert f"of {end}: " in str(raised.value)


@every_reply
def test_a_newer_brokers_reply_that_is_cut_off_anywhere_is_refused(api, version):
    payload = encode(with_unknown_tags(full_entity(reply_type(api, version))))
    for end in range(len(payload)):
        assert violation_of(api, version, payload[:end]), end


@every_reply
def test_bytes_after_the_message_are_ignored(api, version):
    payload = full_payload(api, version)
    longer = memoryview(bytes(payload) + b"\xff\x00 rest")
    assert DECODERS[api](longer, version) == DECODERS[api](payload, version)


@every_reply
def test_one_damaged_byte_gives_a_value_or_a_violation(api, version):
    outcomes = [violation_of(api, version, payload) for payload in damaged(full_payload(api, version))]
    assert any(outcomes)
    assert not all(outcomes)


@every_reply
@settings(max_examples=12)
@given(payload=st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_violation(api, version, payload):
    violation = violation_of(api, version, memoryview(payload))
    assert violation is None or f"{api.name} v{version}" in violation


def hostile_counts(*, compact: bool, nullable: bool) -> list[tuple[str, bytes]]:
    if compact:
        counts = [
            ("2^31-2", b"\xff\xff\xff\xff\x07"),
            ("2^31-1", b"\x80\x80\x80\x80\x08"),
            ("2^32-1", b"\xff\xff\xff\xff\x0f"),
            ("endless", b"\xff\xff\xff\xff\xff"),
            ("a million", b"\x81\x89\xbd\x80\x00"),
        ]
        return counts if nullable else [*counts, ("null", b"\x80\x80\x80\x80\x00")]
    numbers = (2**31 - 1, 1_000_000, -2, -(2**31)) if nullable else (2**31 - 1, 1_000_000, -1, -2, -(2**31))
    return [(str(number), number.to_bytes(4, "big", signed=True)) for number in numbers]


@every_reply
def test_a_hostile_count_in_any_array_is_refused_without_an_allocation(api, version):
    entity_type = reply_type(api, version)
    compact = entity_type.__flexible__
    marker = COMPACT_MARKER if compact else LEGACY_MARKER
    names = set()
    tracemalloc.start()
    try:
        for name, nullable, entity in announcing_entities(full_entity(entity_type)):
            names.add(name)
            written = bytes(encode(entity))
            assert written.count(marker) == 1, name
            position = written.index(marker)
            for label, count in hostile_counts(compact=compact, nullable=nullable):
                payload = memoryview(written.replace(marker, count))
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                with pytest.raises(RemoteViolation, match=f"{api.name} v{version}") as raised:
                    DECODERS[api](payload, version)
                _, peak = tracemalloc.get_traced_memory()
                assert peak - before < 200_000, (name, label)
                assert f"byte {position} of" in str(raised.value), (name, label)
    finally:
        tracemalloc.stop()
    assert names


def test_the_arrays_that_are_attacked_are_all_of_them():
    names = {name for name, _, _ in announcing_entities(full_entity(reply_type(Api.METADATA, 12)))}
    assert names == {
        "brokers",
        "topics",
        "topics.partitions",
        "topics.partitions.replica_nodes",
        "topics.partitions.isr_nodes",
        "topics.partitions.offline_replicas",
    }
    names = {name for name, _, _ in announcing_entities(full_entity(reply_type(Api.FETCH, 16)))}
    assert names == {
        "responses",
        "responses.partitions",
        "responses.partitions.aborted_transactions",
        "node_endpoints",
    }
    names = {name for name, _, _ in announcing_entities(full_entity(reply_type(Api.DESCRIBE_LOG_DIRS, 4)))}
    assert names == {"results", "results.topics", "results.topics.partitions"}
    names = {name for name, _, _ in announcing_entities(full_entity(reply_type(Api.API_VERSIONS, 3)))}
    assert names == {"api_keys", "supported_features", "finalized_features"}


@every_reply
def test_tagged_fields_of_a_newer_broker_change_nothing(api, version):
    entity = full_entity(reply_type(api, version))
    newer = encode(with_unknown_tags(entity))
    assert (b"from the future" in bytes(newer)) == entity.__flexible__
    assert DECODERS[api](newer, version) == DECODERS[api](encode(entity), version)


@every_reply
def test_tagged_fields_in_the_response_header_are_skipped(api, version):
    entity = full_entity(reply_type(api, version))
    tagged = encode(entity, header_tags=b"\x02\x00\x01x\x63\x03abc")
    assert DECODERS[api](tagged, version) == DECODERS[api](encode(entity), version)


@pytest.mark.parametrize("version", [4, 9, 12])
def test_an_error_code_of_the_future_does_not_lose_the_metadata(version):
    entity = full_entity(reply_type(Api.METADATA, version))
    view = metadata.decode_reply(encode(with_unknown_tags(with_unknown_codes(entity))), version)
    assert view.topic_errors == {"näme": -1}
    assert view.nodes == metadata.decode_reply(encode(entity), version).nodes


@pytest.mark.parametrize("version", [2, 6, 10])
def test_an_error_code_of_the_future_does_not_lose_the_offsets(version):
    entity = full_entity(reply_type(Api.LIST_OFFSETS, version))
    answers = list_offsets.decode_reply(encode(with_unknown_codes(entity)), version)
    assert [answer.error_code for answer in answers] == [-1] * 4
    assert [answer.log_offset for answer in answers] == [3] * 4


@pytest.mark.parametrize("version", [3, 4])
def test_an_error_code_of_the_future_does_not_lose_the_epochs(version):
    entity = full_entity(reply_type(Api.OFFSET_FOR_LEADER_EPOCH, version))
    answers = offset_for_leader_epoch.decode_reply(encode(with_unknown_codes(entity)), version)
    assert [(answer.error_code, answer.end_offset) for answer in answers] == [(-1, 3)] * 4


@pytest.mark.parametrize("version", [1, 4])
def test_an_error_code_of_the_future_leaves_sizes_unknown(version):
    entity = full_entity(reply_type(Api.DESCRIBE_LOG_DIRS, version))
    assert describe_log_dirs.decode_reply(encode(with_unknown_codes(entity)), version) == ()


@every_reply
def test_text_that_is_not_utf_8_is_refused_at_its_byte(api, version):
    written = bytes(full_payload(api, version))
    position = written.find("ä".encode())
    if position < 0:
        has_no_text = {Api.API_VERSIONS: range(3), Api.FETCH: range(13, 16)}
        assert version in has_no_text[api]
        return
    payload = memoryview(written.replace("ä".encode(), b"\xc3\xc3", 1))
    with pytest.raises(RemoteViolation, match=f"byte {position} of .* not UTF-8"):
        DECODERS[api](payload, version)


@pytest.mark.parametrize("value", [2, 0xFF])
def test_a_boolean_is_0_or_1(value):
    plain = full_payload(Api.METADATA, 4)
    position = bytes(plain).index(b"\x01", bytes(plain).rindex("näme".encode()))
    copy = bytearray(plain)
    copy[position] = value
    with pytest.raises(RemoteViolation, match=f"byte {position} of .* boolean"):
        metadata.decode_reply(memoryview(copy), 4)


def test_a_known_tagged_field_ends_where_it_says():
    finalized_features_epoch = b"\x01\x01\x09" + bytes(9)
    payload = memoryview(b"\x00\x00\x01" + bytes(4) + finalized_features_epoch)
    with pytest.raises(RemoteViolation, match="tagged field 1 should end at byte 19"):
        DECODERS[Api.API_VERSIONS](payload, 3)


def test_a_tagged_field_that_comes_200_times_counts_as_the_last():
    fields = b"".join(b"\x03\x01" + bytes((index % 2,)) for index in range(200))
    payload = memoryview(b"\x00\x00\x01" + bytes(4) + b"\xc9\x01" + fields + b"\x63\x02no")
    entity = messages.decode_entity(Api.API_VERSIONS, 3, payload)
    assert entity.zk_migration_ready is True


def test_what_kio_refuses_after_all_is_a_violation_too(monkeypatch):
    monkeypatch.setattr(messages, "find_edits", lambda _entity_type, _cursor: [])
    entity = full_entity(reply_type(Api.LIST_OFFSETS, 10))
    with pytest.raises(RemoteViolation, match=r"LIST_OFFSETS v10 answer, byte 1 of .* kio refuses it") as raised:
        list_offsets.decode_reply(encode(with_unknown_codes(entity)), 10)
    assert raised.value.__cause__ is not None


def test_a_violation_survives_the_way_to_the_driver():
    with pytest.raises(RemoteViolation) as raised:
        metadata.decode_reply(memoryview(b""), 12)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_edits_are_made_in_order_and_the_rest_stays():
    edits = [Edit(5, 2, b"XY"), Edit(0, 1, b"\x7f\x01"), Edit(7, 3, b"")]
    assert apply_edits(memoryview(b"0123456789abc"), edits) == b"\x7f\x01" + b"1234XYabc"


def walked(*specs: tuple[str, Any, dict[str, Any]]) -> Any:
    """Make a dataclass as kio's generator would."""
    names = {"__annotations__": {name: annotation for name, annotation, _ in specs}, "__flexible__": False}
    return dataclass(type("Made", (), {**names, **{name: field(metadata=data) for name, _, data in specs}}))


@pytest.mark.parametrize(
    "spec",
    [
        ("width", int, {"kafka_type": "int128"}),
        ("inner", walked(("x", int, {"kafka_type": "int8"})) | None, {}),
    ],
    ids=["a type that is not known", "a struct that may be null"],
)
def test_a_schema_that_the_walker_does_not_know_is_our_own_mistake(spec):
    with pytest.raises(LocalViolation, match=spec[0]):
        find_edits(walked(spec), Cursor(memoryview(bytes(100)), Api.METADATA, 12))
