"""Kafka's messages as our values, and back: frames, version negotiation, requests and replies. Pure.

Requests are encoded and small replies decoded by kio, whose names never leave this room and whose schemas are
imported only for the versions that are used: a cold Python worker pays for every import. Before kio reads a reply,
`connector.wire.bounds` walks it, because kio trusts the lengths it finds. Fetch replies are read by
`connector.wire.fetch_reply` alone, without copying records.

Whatever is wrong with a reply is a `RemoteViolation` that names the API, the version and the byte. Bytes that follow
a complete message are ignored, as the Java client does (``AbstractResponse.parseResponse`` never looks at the rest of
the buffer): the frame's length already separates messages, and nothing after the last known field can change what
the fields before it mean.
"""
