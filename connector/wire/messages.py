"""kio's dataclasses by API and version, imported when a version is first used; the only door to kio's readers.

Importing one version of one API takes a few milliseconds and kio's index of all of them far more, so modules are
named here by rule: ``kio.schema.<api>.v<version>``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from connector.wire.bounds import apply_edits, find_edits
from connector.wire.cursor import Cursor
from connector.wire.versions import Api, require_supported

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload

__all__ = ["decode_entity", "reply_type", "request_schema"]


@cache
def request_schema(api: Api, version: int) -> ModuleType:
    """Return the module that holds the request's dataclasses in `version`."""
    require_supported(api, version)
    return import_module(f"kio.schema.{api.name.lower()}.v{version}.request")


@cache
def reply_type(api: Api, version: int) -> type[ResponsePayload]:
    """Return the dataclass of the whole reply in `version`."""
    require_supported(api, version)
    module = import_module(f"kio.schema.{api.name.lower()}.v{version}.response")
    name = "".join(word.capitalize() for word in api.name.split("_"))
    entity_type: type[ResponsePayload] = getattr(module, f"{name}Response")
    return entity_type


def decode_entity(api: Api, version: int, payload: memoryview) -> Any:  # noqa: ANN401 - a class per API and version
    """Decode a reply into kio's dataclass, which must not leave this room.

    Parameters
    ----------
    payload : memoryview
        The frame from right after the correlation id. The tagged fields that end a flexible response header are
        skipped here, because only the API and its version tell whether there are any. Nothing is borrowed.

    Raises
    ------
    RemoteViolation
        The bytes are not such a reply.
    LocalViolation
        The version is not in `SUPPORTED`.
    """
    # Imported here, because it brings asyncio and ssl along: a process pays when it talks to a broker, not before.
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    entity_type = reply_type(api, version)
    cursor = Cursor(payload, api, version)
    if entity_type.__header_schema__.__flexible__:
        cursor.skip_tagged_fields()
    start = cursor.position
    edits = find_edits(entity_type, cursor)
    readable = apply_edits(payload, edits) if edits else payload
    try:
        entity, _size = entity_reader(entity_type)(readable, start)
    except (SerialError, ValueError, LookupError) as error:
        raise cursor.violation(f"kio refuses it: {error}", start) from error
    return entity
