"""A walk over a reply before kio reads it: what kio would stumble over is refused here, or mended in a copy.

kio (0.6) allocates what an array's count announces before it reads an item, which aborts the process on a hostile
count; it takes null where null is not allowed; it raises KeyError for a tagged field that it doesn't know, although
such fields may be added without a new version (KIP-482); and it loses the whole reply over one unknown error code.
So one walker, compiled from the very dataclasses that kio fills, checks counts, lengths, tagged fields, text and
booleans against the bytes that are there, and notes as `Edit` each unknown error code (it becomes
UNKNOWN_SERVER_ERROR, as in the Java client) and each unknown tagged field (it is left out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from itertools import accumulate, groupby
from struct import Struct
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_args, get_origin

from connector.errors import LocalViolation
from connector.wire.cursor import Cursor
from connector.wire.error_codes import UNKNOWN_SERVER_ERROR, is_known

if TYPE_CHECKING:
    from kio.static.protocol import Entity

__all__ = ["Edit", "apply_edits", "find_edits"]

_INT16: Final = Struct(">h")
_UNKNOWN_SERVER_ERROR_BYTES: Final = _INT16.pack(UNKNOWN_SERVER_ERROR)
_FIXED_BYTES: Final = MappingProxyType(
    {
        "bool": 1,
        "int8": 1,
        "int16": 2,
        "int32": 4,
        "int64": 8,
        "uint16": 2,
        "uint32": 4,
        "float64": 8,
        "uuid": 16,
        "error_code": 2,
        "timedelta_i32": 4,
        "timedelta_i64": 8,
        "datetime_i64": 8,
    }
)


class Edit(NamedTuple):
    """Put `replacement` in the place of `removed_bytes` bytes at `position`."""

    position: int
    removed_bytes: int
    replacement: bytes


class _Part(NamedTuple):
    """Some consecutive fields: the fewest bytes they take, and how to walk over them."""

    min_bytes: int
    walk: Callable[[Cursor, list[Edit]], object]


_Fixed: TypeAlias = str
"""A Kafka type of fixed size; neighbours are walked in one step."""


def find_edits(entity_type: type[Entity], cursor: Cursor) -> list[Edit]:
    """Walk over one message and return what must be mended before kio can read it; usually nothing.

    Parameters
    ----------
    entity_type : type
        kio's dataclass of the message.
    cursor : Cursor
        Stands at the message's first byte; afterwards right behind its last one.

    Raises
    ------
    RemoteViolation
        The bytes are not such a message.
    """
    edits: list[Edit] = []
    _entity_part(entity_type).walk(cursor, edits)
    return edits


def apply_edits(payload: memoryview, edits: Iterable[Edit]) -> bytes:
    """Return a copy of `payload` with all `edits` made; their positions refer to `payload` as it is."""
    pieces: list[bytes | memoryview] = []
    position = 0
    for edit in sorted(edits):
        pieces += (payload[position : edit.position], edit.replacement)
        position = edit.position + edit.removed_bytes
    return b"".join((*pieces, payload[position:]))


@cache
def _entity_part(entity_type: type[Entity]) -> _Part:
    """Compile a message or struct: its plain fields in order, then its tagged ones."""
    compact = entity_type.__flexible__
    steps: list[_Fixed | _Part] = []
    tagged: dict[int, _Part] = {}
    for field in fields(entity_type):
        step = _field_step(field, compact=compact)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = _sequence_part([step])
        else:
            steps.append(step)
    if compact:
        steps.append(_tagged_part(tagged))
    return _sequence_part(steps)


def _field_step(field: Field[Any], *, compact: bool) -> _Fixed | _Part:
    """Compile one field from its annotation and kio's ``kafka_type``; a struct has none."""
    annotation: Any = field.type
    nullable = isinstance(annotation, UnionType)
    if nullable:
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    kafka_type: str | None = field.metadata.get("kafka_type")
    if get_origin(annotation) is tuple:
        item_type = get_args(annotation)[0]
        item = _entity_part(item_type) if kafka_type is None else _value_step(kafka_type, field.name, compact=compact)
        return _array_part(field.name, _sequence_part([item]), compact=compact, nullable=nullable)
    if kafka_type is not None:
        return _value_step(kafka_type, field.name, compact=compact, nullable=nullable)
    if nullable:
        raise LocalViolation(f"{field.name}: nullable structs (KIP-893) are not walked")
    return _entity_part(annotation)


def _value_step(kafka_type: str, name: str, *, compact: bool, nullable: bool = False) -> _Fixed | _Part:
    """Compile one value that is neither a struct nor an array."""
    if kafka_type in _FIXED_BYTES:
        return kafka_type
    if kafka_type == "string":
        return _Part(
            1 if compact else 2,
            lambda cursor, _edits: cursor.read_text(name, compact=compact, nullable=nullable),
        )
    if kafka_type in {"bytes", "records"}:
        return _Part(
            1 if compact else 4,
            lambda cursor, _edits: cursor.read_bytes(name, compact=compact, nullable=nullable),
        )
    raise LocalViolation(f"{name}: values of type {kafka_type} are not walked")


def _fixed_part(kafka_types: Sequence[_Fixed]) -> _Part:
    """Compile neighbours of fixed size into one step that looks only at error codes and booleans."""
    starts = [0, *accumulate(_FIXED_BYTES[kafka_type] for kafka_type in kafka_types)]
    size = starts.pop()
    error_codes = [at for at, kafka_type in zip(starts, kafka_types, strict=True) if kafka_type == "error_code"]
    booleans = [at for at, kafka_type in zip(starts, kafka_types, strict=True) if kafka_type == "bool"]

    def walk(cursor: Cursor, edits: list[Edit]) -> None:
        start = cursor.position
        cursor.skip(size)
        for at in error_codes:
            (code,) = _INT16.unpack_from(cursor.payload, start + at)
            if not is_known(code):
                edits.append(Edit(start + at, _INT16.size, _UNKNOWN_SERVER_ERROR_BYTES))
        for at in booleans:
            if cursor.payload[start + at] > 1:
                raise cursor.violation("a boolean is neither 0 nor 1", start + at)

    return _Part(size, walk)


def _sequence_part(steps: Iterable[_Fixed | _Part]) -> _Part:
    """Join steps, merging neighbours of fixed size."""
    parts: list[_Part] = []
    for is_fixed, group in groupby(steps, key=lambda step: isinstance(step, str)):
        if is_fixed:
            parts.append(_fixed_part([step for step in group if isinstance(step, str)]))
        else:
            parts += [step for step in group if isinstance(step, _Part)]
    if len(parts) == 1:
        return parts[0]

    def walk(cursor: Cursor, edits: list[Edit]) -> None:
        for part in parts:
            part.walk(cursor, edits)

    return _Part(sum(part.min_bytes for part in parts), walk)


def _array_part(name: str, item: _Part, *, compact: bool, nullable: bool) -> _Part:
    """Compile an array: its count is believed only as far as the remaining bytes reach."""

    def walk(cursor: Cursor, edits: list[Edit]) -> None:
        count = cursor.read_count(name, item_bytes=item.min_bytes, compact=compact, nullable=nullable)
        for _ in range(count):
            item.walk(cursor, edits)

    return _Part(1 if compact else 4, walk)


def _tagged_part(tagged: Mapping[int, _Part]) -> _Part:
    """Compile a section of tagged fields: known ones are walked, unknown ones left out.

    kio reads a known field without looking at its size: so the size must be exactly that of the value, and an edit
    inside the value needs no new size.
    """

    def walk(cursor: Cursor, edits: list[Edit]) -> None:
        start = cursor.position
        count = cursor.read_unsigned_varint()
        count_end = cursor.position
        known_count = 0
        for _ in range(count):
            field_start = cursor.position
            tag, field_end = cursor.read_tagged_field_start()
            if tag in tagged:
                known_count += 1
                tagged[tag].walk(cursor, edits)
                cursor.check_tagged_field_end(tag, field_end)
            else:
                cursor.position = field_end
                edits.append(Edit(field_start, field_end - field_start, b""))
        if known_count != count:
            edits.append(Edit(start, count_end - start, _unsigned_varint(known_count)))

    return _Part(1, walk)


def _unsigned_varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
