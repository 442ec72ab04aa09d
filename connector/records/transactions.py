"""Which batches of an answer belong to aborted transactions (read_committed).

Brokers answer what is below the last stable offset together with a list of aborted transactions, each by producer id
and first offset; to leave their batches out is the client's work. The list is no promise: its order is open, it may
name transactions that lie beyond the records, and a transaction may have begun in front of them. An ABORT marker is
the last word on a transaction, so the producer's next one is judged anew. A marker may have survived its data, or have
been emptied by compaction, and then it says nothing.

Spec: KIP-98, "Consumer"; control records: ``ControlRecordType``. Counterpart: ``CompletedFetch``.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from connector.records.layout import TRANSACTIONAL_MASK, BatchHeader

__all__ = ["ABORT", "AbortedTransactions", "control_type"]

ABORT: Final = 0
"""Type of the control record that ends a transaction as aborted; 1 is COMMIT, others are Kafka's own."""

_CONTROL_KEY: Final = Struct(">hh")
_CONTROL_HEAD_BYTES: Final = 30
"""Length, attributes, timestamp delta, offset delta, key length and key of a control record, at most."""


class AbortedTransactions:
    """The state of one answer's transactions while its batches go by in their order.

    Parameters
    ----------
    listed : iterable of (producer id, first offset)
        What the answer names, in any order.

    Notes
    -----
    Made anew for every answer: what one answer leaves open, the next one lists again.
    """

    def __init__(self, listed: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first_offset, producer_id) for producer_id, first_offset in listed), reverse=True)
        self._open: set[int] = set()

    def on_data(self, header: BatchHeader) -> bool:
        """Take the next batch of records into account, and tell whether it is aborted.

        A batch without a transaction is not, even if its producer has an id (idempotence).
        """
        producer_id = self._advance(header)
        return header[5] & TRANSACTIONAL_MASK != 0 and producer_id in self._open

    def on_marker(self, header: BatchHeader, marker_type: int) -> None:
        """Take the next control batch into account; `marker_type` is what `control_type` says of its records."""
        producer_id = self._advance(header)
        if marker_type == ABORT:
            self._open.discard(producer_id)

    def _advance(self, header: BatchHeader) -> int:
        """Open the transactions that begin before the batch ends; return the batch's producer id."""
        base_offset, _, _, _, _, _, last_offset_delta, _, _, producer_id, _ = header
        while self._ahead and self._ahead[-1][0] <= base_offset + last_offset_delta:
            self._open.add(self._ahead.pop()[1])
        return producer_id


def control_type(records: memoryview) -> int | None:
    """Return the type of the first of a control batch's records, or None if it is no control record.

    Parameters
    ----------
    records : memoryview of bytes
        Decompressed records; borrowed.
    """
    head = bytes(records[:_CONTROL_HEAD_BYTES])
    try:
        _, at = _read_varint(head, 0)
        _, at = _read_varint(head, at + 1)
        _, at = _read_varint(head, at)
        key_bytes, at = _read_varint(head, at)
    except IndexError:  # the records end, or a number does not
        return None
    if key_bytes < _CONTROL_KEY.size or at + _CONTROL_KEY.size > len(head):
        return None
    version, marker_type = _CONTROL_KEY.unpack_from(head, at)
    return marker_type if version >= 0 else None


def _read_varint(head: bytes, at: int) -> tuple[int, int]:
    """Return a zig-zag varint's value and the byte after it."""
    raw = shift = 0
    while True:
        byte = head[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return raw >> 1 ^ -(raw & 1), at
        shift += 7
