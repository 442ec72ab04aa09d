"""Reading a reply's primitives with every step checked against the end of the reply.

Notes
-----
Spec: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for varints, compact forms and tagged fields.
Counterpart: ``ByteBufferAccessor``, ``ByteUtils.readUnsignedVarint``.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from connector.errors import RemoteViolation
from connector.wire.versions import Api

__all__ = ["Cursor"]

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_MAX_VARINT_BYTES: Final = 5


class Cursor:
    """A position in one reply. Nothing is read beyond the end, and no count is believed that the rest can't hold.

    Parameters
    ----------
    payload : memoryview
        The reply, from right after the correlation id. Borrowed; `read_bytes` returns slices of it.
    api, version : Api, int
        Named in every violation.
    """

    __slots__ = ("_api", "_version", "end", "payload", "position")

    def __init__(self, payload: memoryview, api: Api, version: int) -> None:
        self.payload = payload
        self.position = 0
        self.end = len(payload)
        self._api = api
        self._version = version

    def violation(self, reason: str, position: int | None = None) -> RemoteViolation:
        """Build the error for something wrong at `position` (by default: here). The caller raises it."""
        at = self.position if position is None else position
        return RemoteViolation(f"malformed {self._api.name} v{self._version} answer, byte {at} of {self.end}: {reason}")

    def skip(self, size: int) -> None:
        """Step over `size` bytes."""
        position = self.position + size
        if position > self.end:
            raise self._cut_off(size)
        self.position = position

    def read(self, layout: Struct) -> tuple[Any, ...]:
        """Read one fixed layout."""
        start = self.position
        position = start + layout.size
        if position > self.end:
            raise self._cut_off(layout.size)
        self.position = position
        return layout.unpack_from(self.payload, start)

    def read_unsigned_varint(self) -> int:
        """Read an unsigned varint: seven bits a byte, lowest first, at most five bytes."""
        start = self.position
        if start < self.end and self.payload[start] < 0x80:
            self.position = start + 1
            return self.payload[start]
        value = 0
        for index, byte in enumerate(self.payload[start : start + _MAX_VARINT_BYTES]):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.position = start + index + 1
                return value
        if self.end - start < _MAX_VARINT_BYTES:
            raise self.violation("the answer ends inside a varint")
        raise self.violation("varint longer than five bytes")

    def read_count(self, what: str, *, item_bytes: int, compact: bool, nullable: bool = False) -> int:
        """Read how many items an array has; -1 is null.

        Parameters
        ----------
        what : str
            The array's name, for the error.
        item_bytes : int
            The fewest bytes an item takes. A count that the rest of the reply can't hold is refused at once.
        """
        start = self.position
        count: int = self.read_unsigned_varint() - 1 if compact else self.read(_INT32)[0]
        if count < 0:
            self._check_null(what, count, start, nullable=nullable)
        elif count * item_bytes > self.end - self.position:
            raise self.violation(f"{count} {what} can't fit into {self.end - self.position} bytes", start)
        return count

    def read_bytes(self, what: str, *, compact: bool, nullable: bool, short: bool = False) -> memoryview:
        """Read length-prefixed bytes as a slice of the payload; null, where it is allowed, is an empty slice.

        `short` tells that the length is an int16 (strings) and not an int32 (bytes, records) where it isn't `compact`.
        """
        start = self.position
        length: int
        if compact:
            length = self.read_unsigned_varint() - 1
        else:
            (length,) = self.read(_INT16 if short else _INT32)
        if length < 0:
            self._check_null(what, length, start, nullable=nullable)
            length = 0
        position = self.position
        if length > self.end - position:
            raise self.violation(f"{what} of {length} bytes in the last {self.end - position} bytes", start)
        self.position = position + length
        return self.payload[position : position + length]

    def read_text(self, what: str, *, compact: bool, nullable: bool = False) -> str:
        """Read a string; null, where it is allowed, is an empty one."""
        data = self.read_bytes(what, compact=compact, nullable=nullable, short=True)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            at = self.position - len(data) + error.start
            raise self.violation(f"{what} is not UTF-8", at) from error

    def read_compact_nullable_text(self, what: str) -> str | None:
        """Read a compact string that may be null; null and empty differ, unlike in `read_text`."""
        start = self.position
        if self.read_unsigned_varint() == 0:
            return None
        self.position = start
        return self.read_text(what, compact=True)

    def read_tagged_field_start(self) -> tuple[int, int]:
        """Read the tag and size of a tagged field; return the tag and where the value that follows ends."""
        start = self.position
        tag = self.read_unsigned_varint()
        size = self.read_unsigned_varint()
        if size > self.end - self.position:
            raise self.violation(f"tagged field {tag} of {size} bytes in the last {self.end - self.position}", start)
        return tag, self.position + size

    def check_tagged_field_end(self, tag: int, field_end: int) -> None:
        """Raise unless the value that was read ends where the field's size says."""
        if self.position != field_end:
            raise self.violation(f"tagged field {tag} should end at byte {field_end}")

    def skip_tagged_fields(self) -> None:
        """Step over a section of tagged fields; usually it is a single zero."""
        for _ in range(self.read_unsigned_varint()):
            _tag, self.position = self.read_tagged_field_start()

    def _check_null(self, what: str, length: int, start: int, *, nullable: bool) -> None:
        if length != -1:
            raise self.violation(f"{what} has the length {length}", start)
        if not nullable:
            raise self.violation(f"{what} is null", start)

    def _cut_off(self, size: int) -> RemoteViolation:
        return self.violation(f"{size} bytes are missing or cut off, {self.end - self.position} are left")
