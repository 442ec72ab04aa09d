"""kio's replies as an oracle: made at random or complete, written by kio, and damaged on purpose.

Everything is driven by kio's dataclasses, so that a version or a field that is added is tested without a new line.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields, make_dataclass, replace
from datetime import timedelta
from functools import cache, partial
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from connector.wire import (
    api_versions,
    describe_log_dirs,
    fetch_reply,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from connector.wire.messages import reply_type
from connector.wire.versions import SUPPORTED, Api

FULL_TOPIC_ID: Final = UUID(int=7)
"""Topic id in every `full_entity`."""
DECODERS: Final[dict[Api, Callable[[memoryview, int], Any]]] = {
    Api.FETCH: partial(fetch_reply.decode_reply, topic_names={FULL_TOPIC_ID: "näme"}),
    Api.LIST_OFFSETS: list_offsets.decode_reply,
    Api.METADATA: metadata.decode_reply,
    Api.API_VERSIONS: api_versions.decode_reply,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.decode_reply,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs.decode_reply,
}
REPLIES: Final = [
    (api, version) for api, (lowest, highest) in SUPPORTED.items() for version in range(lowest, highest + 1)
]
UNKNOWN_CODE: Final = 9999
UNKNOWN_TAG: Final = 99
MARKER_COUNT: Final = 0x5A5A5A5A
LEGACY_MARKER: Final = MARKER_COUNT.to_bytes(4, "big")
COMPACT_MARKER: Final = bytes((0xDB, 0xB4, 0xE9, 0xD2, 0x05))
"""`MARKER_COUNT` + 1 as an unsigned varint."""

_RANGES: Final = MappingProxyType({"int8": 8, "int16": 16, "int32": 32, "int64": 64})


def is_array(annotation: Any) -> bool:
    return get_origin(_without_none(annotation)) is tuple


def is_nullable(annotation: Any) -> bool:
    return isinstance(annotation, UnionType)


def item_type(annotation: Any) -> Any:
    return get_args(_without_none(annotation))[0]


def _without_none(annotation: Any) -> Any:
    if not is_nullable(annotation):
        return annotation
    (inner,) = (part for part in get_args(annotation) if part is not NoneType)
    return inner


def entities(entity_type: Any) -> st.SearchStrategy[Any]:
    """Any value of one of kio's dataclasses; arrays and text are short."""
    return st.builds(entity_type, **{each.name: _values(each) for each in fields(entity_type)})


def _values(each: Any) -> st.SearchStrategy[Any]:
    kafka_type = each.metadata.get("kafka_type")
    inner = _without_none(each.type)
    if is_array(each.type):
        items = _primitives(kafka_type) if kafka_type else entities(item_type(each.type))
        values: st.SearchStrategy[Any] = st.lists(items, max_size=2).map(tuple)
    else:
        values = _primitives(kafka_type) if kafka_type else entities(inner)
    return st.none() | values if is_nullable(each.type) else values


@cache
def _primitives(kafka_type: str) -> st.SearchStrategy[Any]:
    if kafka_type in _RANGES:
        bits = _RANGES[kafka_type]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    milliseconds = st.integers(-(2**31), 2**31 - 1)
    return {
        "bool": st.booleans(),
        "string": st.text(max_size=5),
        "records": st.binary(max_size=300),
        "bytes": st.binary(max_size=5),
        "uuid": st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number)),
        "error_code": st.sampled_from(ErrorCode),
        "timedelta_i32": milliseconds.map(lambda ms: timedelta(milliseconds=ms)),
    }[kafka_type]


def full_entity(entity_type: Any) -> Any:
    """A value in which nothing is empty, null or default, so that every field leaves bytes."""
    return entity_type(**{each.name: _full_value(each) for each in fields(entity_type)})


def _full_value(each: Any) -> Any:
    kafka_type = each.metadata.get("kafka_type")
    inner = item_type(each.type) if is_array(each.type) else _without_none(each.type)
    value = (
        {
            "bool": True,
            "string": "näme",
            "records": b"records",
            "bytes": b"bytes",
            "uuid": FULL_TOPIC_ID,
            "error_code": ErrorCode.none,
            "timedelta_i32": timedelta(milliseconds=5),
        }.get(kafka_type, 3)
        if kafka_type
        else full_entity(inner)
    )
    return (value, value) if is_array(each.type) else value


def encode(entity: Any, *, header_tags: bytes = b"\x00") -> memoryview:
    """The reply as a frame's payload: the end of the response header, and what kio writes."""
    buffer = io.BytesIO()
    if getattr(type(entity), "__header_schema__", None) and type(entity).__header_schema__.__flexible__:
        buffer.write(header_tags)
    entity_writer(type(entity))(buffer, entity)
    return memoryview(buffer.getvalue())


def full_payload(api: Api, version: int) -> memoryview:
    return encode(full_entity(reply_type(api, version)))


class Announcing(tuple[Any, ...]):
    """An array that announces `MARKER_COUNT` items and has fewer."""

    def __len__(self) -> int:
        return MARKER_COUNT


def announcing_entities(entity: Any) -> Iterator[tuple[str, bool, Any]]:
    """For each array anywhere inside: its name, whether it may be null, and the entity with that array announcing."""
    for each in fields(entity):
        value = getattr(entity, each.name)
        if is_array(each.type):
            yield each.name, is_nullable(each.type), replace(entity, **{each.name: Announcing(value)})
            if not each.metadata.get("kafka_type"):
                for name, nullable, item in announcing_entities(value[0]):
                    yield f"{each.name}.{name}", nullable, replace(entity, **{each.name: (item, *value[1:])})


def with_unknown_codes(entity: Any) -> Any:
    """The entity with every error code replaced by one that nobody knows."""
    return _rebuilt(entity, type(entity), lambda _known: SimpleNamespace(value=UNKNOWN_CODE))


def with_unknown_tags(entity: Any) -> Any:
    """The entity as a newer broker would send it: each struct of a flexible version has one more tagged field."""
    return _rebuilt(entity, _newer_type(type(entity)), lambda known: known, unknown="from the future")


def _rebuilt(entity: Any, as_type: Any, recoded: Callable[[Any], Any], **more: Any) -> Any:
    values = dict(more) if as_type.__flexible__ else {}
    newer_fields = {each.name: each for each in fields(as_type)}
    for each in fields(entity):
        value = getattr(entity, each.name)
        newer = newer_fields[each.name].type
        if each.metadata.get("kafka_type") == "error_code":
            value = recoded(value)
        elif not each.metadata.get("kafka_type") and value is not None:
            if is_array(each.type):
                value = tuple(_rebuilt(item, item_type(newer), recoded, **more) for item in value)
            else:
                value = _rebuilt(value, newer, recoded, **more)
        values[each.name] = value
    return as_type(**values)


def _newer_type(entity_type: Any) -> Any:
    specs: list[tuple[str, Any, Any]] = []
    for each in fields(entity_type):
        annotation = each.type
        if not each.metadata.get("kafka_type"):
            newer = _newer_type(item_type(annotation) if is_array(annotation) else annotation)
            annotation = tuple[newer, ...] if is_array(annotation) else newer  # type: ignore[valid-type]  # made here
            annotation = annotation | None if is_nullable(each.type) else annotation
        specs.append((each.name, annotation, field(metadata=each.metadata, kw_only=True, default=each.default)))
    if entity_type.__flexible__:
        unknown = field(metadata={"kafka_type": "string", "tag": UNKNOWN_TAG}, default="", kw_only=True)
        specs.append(("unknown", str, unknown))
    constants = {name: getattr(entity_type, name) for name in ("__flexible__", "__header_schema__")}
    return make_dataclass(entity_type.__name__, specs, frozen=True, namespace=constants)


def damaged(payload: memoryview, values: Sequence[int] = (0x00, 0x01, 0x7F, 0x80, 0xFF)) -> Iterator[memoryview]:
    """The payload with one byte at a time replaced."""
    for position, original in enumerate(payload):
        for value in values:
            if value != original:
                copy = bytearray(payload)
                copy[position] = value
                yield memoryview(copy)
