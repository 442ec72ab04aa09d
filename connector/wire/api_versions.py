"""ApiVersions: which APIs and versions a broker offers; the first request of every connection.

Notes
-----
Spec: KIP-35, KIP-511. Counterpart: ``ApiVersionsRequest``, ``ApiVersionsResponse.parse``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connector.errors import RemoteViolation
from connector.wire.error_codes import UNSUPPORTED_VERSION
from connector.wire.frames import encode_frame
from connector.wire.messages import decode_entity, request_schema
from connector.wire.versions import Api

__all__ = ["ApiVersionsReply", "decode_reply", "encode_request"]

_SOFTWARE_NAME: Final = "spark-kafka-follower"
_SOFTWARE_VERSION: Final = "0.1.0"
_FIRST_VERSION_WITH_SOFTWARE: Final = 3
_UNSUPPORTED_VERSION_BYTES: Final = UNSUPPORTED_VERSION.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class ApiVersionsReply:
    """A broker's answer: `ranges` holds lowest and highest version by API key, also of APIs unknown to us."""

    error_code: int
    ranges: dict[int, tuple[int, int]]


def encode_request(*, version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode the request; from version 3 on it names this software, for the broker's own metrics."""
    schema = request_schema(Api.API_VERSIONS, version)
    software = {}
    if version >= _FIRST_VERSION_WITH_SOFTWARE:
        software = {"client_software_name": _SOFTWARE_NAME, "client_software_version": _SOFTWARE_VERSION}
    body = schema.ApiVersionsRequest(**software)
    return encode_frame(Api.API_VERSIONS, version, correlation_id, client_id, body)


def decode_reply(payload: memoryview, version: int) -> ApiVersionsReply:
    """Decode the answer to a request that was sent in `version`.

    A broker that does not know `version` answers UNSUPPORTED_VERSION, in version 0 whatever was asked; others answer
    it in the version that was asked (librdkafka's mock broker). Both are decoded: since Kafka 2.4 `ranges` tells then
    which versions of ApiVersions to try; where it is empty, version 0 remains. The response header of this API is
    never a flexible one, so that the error code can be read whatever version it comes in.
    """
    try:
        entity = decode_entity(Api.API_VERSIONS, version, payload)
    except RemoteViolation:
        if payload[:2] != _UNSUPPORTED_VERSION_BYTES:
            raise
        entity = decode_entity(Api.API_VERSIONS, 0, payload)
    return ApiVersionsReply(
        error_code=int(entity.error_code),
        ranges={offered.api_key: (offered.min_version, offered.max_version) for offered in entity.api_keys},
    )
