import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from streaming_app.local.order_events import order_events
from streaming_app.orders import ORDER_FIELDS, OUTPUT_COLUMNS
from streaming_app.pipeline import parse_orders

pytestmark = pytest.mark.spark

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
ARRIVED_AT = datetime(2026, 1, 5, 23, 59, 59, 999_000, tzinfo=UTC)
ORDER: dict[str, Any] = {
    "order_id": "o-1",
    "customer_id": "c-1",
    "sku": "s-1",
    "quantity": 2,
    "price_cents": 1999,
    "currency": "EUR",
    "channel": "web",
    "placed_at": "2026-01-05T08:00:00.037Z",
    "coupon": None,
}


def parse(spark: SparkSession, *values: bytes | None) -> list[Row]:
    rows = [(None, value, "orders", 3, offset, ARRIVED_AT, 0) for offset, value in enumerate(values)]
    return parse_orders(spark.createDataFrame(rows, SCHEMA)).orderBy("offset").collect()


def as_json(**changes: object) -> bytes:
    return json.dumps(ORDER | changes).encode()


def without(*names: str) -> bytes:
    return json.dumps({name: value for name, value in ORDER.items() if name not in names}).encode()


def test_an_order_becomes_typed_columns_and_keeps_where_it_came_from(spark):
    (row,) = parse(spark, as_json())
    assert row.asDict() == {
        **ORDER,
        "placed_at": datetime(2026, 1, 5, 8, 0, 0, 37_000, tzinfo=UTC).astimezone().replace(tzinfo=None),
        "topic": "orders",
        "partition": 3,
        "offset": 0,
        "timestamp": ARRIVED_AT.astimezone().replace(tzinfo=None),
        "malformed_value": None,
        "malformed": False,
        "arrival_date": date(2026, 1, 5),
    }
    assert tuple(row.asDict()) == OUTPUT_COLUMNS


def test_generated_orders_are_read_as_pythons_json_reads_them(spark):
    values = [value for _, value in order_events(300, seed=5)]
    for row, value in zip(parse(spark, *values), values, strict=True):
        expected = json.loads(value)
        moment = datetime.fromisoformat(expected.pop("placed_at"))
        assert not row["malformed"]
        assert row["placed_at"] == moment.astimezone().replace(tzinfo=None)
        assert {name: row[name] for name in expected} == expected


WELL_FORMED = {
    "optional member absent": without("coupon"),
    "optional member present": as_json(coupon="SPRING26"),
    "unknown member": as_json(note="leave at the door"),
    "spaces and line ends around": b" \r\n" + as_json() + b"\n ",
    "other letters than ASCII": as_json(customer_id="Zoë 🚲"),
    "brackets and quotes inside a text": as_json(sku='a"],[{"x'),
    "largest price": as_json(price_cents=2**63 - 1),
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_well_formed_order_is_taken(spark, name):
    (row,) = parse(spark, WELL_FORMED[name])
    expected = json.loads(WELL_FORMED[name])
    assert not row["malformed"]
    assert row["malformed_value"] is None
    for column in ("order_id", "customer_id", "sku", "price_cents", "coupon"):
        assert row[column] == expected.get(column)


MALFORMED = {
    "no value": None,
    "empty": b"",
    "no JSON": b"hello",
    "cut short": as_json()[:-1],
    "something after it": as_json() + b" garbage",
    "two orders one after the other": as_json() + as_json(order_id="o-2"),
    "two orders with a comma": as_json() + b"," + as_json(order_id="o-2"),
    "an array of two orders": b"[" + as_json() + b"," + as_json(order_id="o-2") + b"]",
    "an array of one order": b"[" + as_json() + b"]",
    "null": b"null",
    "a text": b'"order"',
    "a number": b"5",
    "no members": b"{}",
    "single quotes": as_json().replace(b'"', b"'"),
    "not UTF-8": as_json().replace(b"c-1", b"c-\xff"),
    "UTF-16": as_json().decode().encode("utf-16"),
    "a text where a number belongs": as_json(quantity="2"),
    "a fraction where a whole number belongs": as_json(quantity=1.5),
    "a number too large for its type": as_json(quantity=2**31),
    "a moment that is none": as_json(placed_at="yesterday"),
    **{f"{field.name} absent": without(field.name) for field in ORDER_FIELDS if field.is_required},
    **{f"{field.name} null": as_json(**{field.name: None}) for field in ORDER_FIELDS if field.is_required},
}


def test_nothing_malformed_is_lost_and_its_bytes_stay_as_they_were(spark):
    rows = parse(spark, *MALFORMED.values())
    assert len(rows) == len(MALFORMED)
    for (name, value), row in zip(MALFORMED.items(), rows, strict=True):
        assert row["malformed"], name
        assert row["malformed_value"] == value, name
        assert [row[field.name] for field in ORDER_FIELDS] == [None] * len(ORDER_FIELDS), name
        assert (row["topic"], row["partition"], row["arrival_date"]) == ("orders", 3, date(2026, 1, 5)), name
