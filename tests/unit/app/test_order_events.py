import json
from datetime import datetime

from streaming_app.local.order_events import order_events
from streaming_app.orders import ORDER_FIELDS

PYTHON_TYPES = {"string": str, "int": int, "bigint": int, "timestamp": str}


def test_each_order_has_the_declared_members_with_their_types():
    for key, value in order_events(500, seed=7):
        order = json.loads(value)
        assert list(order) == [field.name for field in ORDER_FIELDS]
        for field in ORDER_FIELDS:
            is_absent = order[field.name] is None and not field.is_required
            assert is_absent or type(order[field.name]) is PYTHON_TYPES[field.sql_type]
        assert key.decode() == order["customer_id"]
        assert datetime.fromisoformat(order["placed_at"]).tzinfo is not None
        assert 150 <= len(value) <= 250


def test_the_same_seed_gives_the_same_orders_and_another_seed_others():
    assert list(order_events(50, seed=1)) == list(order_events(50, seed=1))
    assert list(order_events(50, seed=1)) != list(order_events(50, seed=2))


def test_no_two_orders_have_the_same_id():
    ids = [json.loads(value)["order_id"] for _, value in order_events(2_000, seed=1)]
    assert len(set(ids)) == 2_000


def test_some_orders_have_a_coupon_and_some_have_none():
    coupons = {json.loads(value)["coupon"] for _, value in order_events(500, seed=1)}
    assert coupons == {None, "SPRING26", "WELCOME10"}
