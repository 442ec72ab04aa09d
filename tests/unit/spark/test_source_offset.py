"""Source offsets: the text forms, their order, and what is refused."""

from __future__ import annotations

import json

import pytest

from connector.errors import SourceOffsetError
from connector.model import TopicPartition
from connector.spark.source_offset import UNRESOLVED, SourceOffset, decode_source_offset, encode_source_offset

A10, A2, B0 = TopicPartition("a", 10), TopicPartition("a", 2), TopicPartition("b", 0)


def test_equal_offsets_are_equal_text_whatever_the_order() -> None:
    one = encode_source_offset(SourceOffset({B0: 1, A10: 2, A2: 3}))
    other = encode_source_offset(SourceOffset({A2: 3, A10: 2, B0: 1}))
    assert json.dumps(one) == json.dumps(other)
    assert json.dumps(one["offsets"]) == '{"a": {"2": 3, "10": 2}, "b": {"0": 1}}'


@pytest.mark.parametrize("start", [None, {A2: 0, A10: 5, B0: 1}])
def test_what_is_written_is_read_back(start: dict[TopicPartition, int] | None) -> None:
    source_offset = SourceOffset({A2: 1, A10: 6, B0: 2}, start)
    assert decode_source_offset(json.loads(json.dumps(encode_source_offset(source_offset)))) == source_offset


def test_the_initial_marker_is_not_resolved() -> None:
    assert decode_source_offset(UNRESOLVED) is None


def test_the_form_of_sparks_own_source_is_read() -> None:
    assert decode_source_offset({"a": {"2": 7}}) == SourceOffset({A2: 7})


def test_a_later_format_is_refused_with_its_number() -> None:
    with pytest.raises(SourceOffsetError, match="format 2"):
        decode_source_offset({"$kafka_follower": 2, "offsets": {}})


@pytest.mark.parametrize("encoded", [{"logOffset": 3}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": -1}}])
def test_the_checkpoint_of_another_source_is_refused(encoded: dict[str, object]) -> None:
    with pytest.raises(SourceOffsetError, match="another source"):
        decode_source_offset(encoded)
