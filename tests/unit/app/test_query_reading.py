import pytest

from streaming_app.local.scrape import QueryReading, parse_query_reading

BATCHES = 'kafka_follower_batches_total{query="orders"}'
ROWS = 'kafka_follower_rows_total{query="orders"}'
LAG = 'kafka_follower_topic_lag_records{query="orders",topic="%s"}'


@pytest.mark.parametrize(
    ("lines", "reading"),
    [
        ([], None),
        ([f"{BATCHES} 0"], QueryReading(0, 0, None)),
        ([f"{BATCHES} 3", f"{ROWS} 1.25e+06", f"{LAG % 'a'} 0"], QueryReading(3, 1_250_000, 0)),
        ([f"{BATCHES} 3", f"{ROWS} 7", f"{LAG % 'a'} 2", f"{LAG % 'b'} 3"], QueryReading(3, 7, 5)),
    ],
    ids=["no-query", "no-batch", "caught-up", "two-topics"],
)
def test_what_a_driver_says_of_its_queries(lines, reading):
    assert parse_query_reading("".join(f"{line}\n" for line in lines)) == reading
