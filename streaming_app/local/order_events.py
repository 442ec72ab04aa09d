"""Order events that look like a shop's, the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["order_events"]

FIRST_ORDER_AT: Final = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
CUSTOMER_COUNT: Final = 50_000
SKU_COUNT: Final = 800
CURRENCIES: Final = ("EUR", "EUR", "EUR", "GBP", "CHF", "PLN")
CHANNELS: Final = ("web", "web", "app", "app", "app", "store")
COUPONS: Final = ("null", "null", "null", "null", "null", "null", "null", "null", '"SPRING26"', '"WELCOME10"')


def order_events(count: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys (customers) and values (JSON, about 200 bytes) of orders.

    A few customers order much and most order little, so that partitions differ in size as real ones do. The JSON is
    put together by hand, since all of it is ASCII that needs no escaping, and ``json.dumps`` would take most of the
    time.
    """
    chance = random.Random(seed)  # noqa: S311 - data for a demonstration
    prices = [chance.randrange(199, 49_999) for _ in range(SKU_COUNT)]
    for number in range(count):
        pick = chance.random()
        customer = f"cust-{int(pick * pick * CUSTOMER_COUNT):06d}"
        sku = int(chance.random() * SKU_COUNT)
        moment = FIRST_ORDER_AT + timedelta(milliseconds=37 * number)
        value = (
            f'{{"order_id":"ord-{seed:04x}-{number:010d}","customer_id":"{customer}","sku":"SKU-{sku:05d}",'
            f'"quantity":{1 + int(pick * 41) % 5},"price_cents":{prices[sku]},"currency":"{CURRENCIES[number % 6]}",'
            f'"channel":"{CHANNELS[sku % 6]}","placed_at":"{moment.strftime("%Y-%m-%dT%H:%M:%S")}.'
            f'{moment.microsecond // 1000:03d}Z","coupon":{COUPONS[sku % 10]}}}'
        )
        yield customer.encode(), value.encode()
