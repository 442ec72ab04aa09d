from dataclasses import replace

import pytest

from streaming_app.local.demo_report import DemoResult, find_problems, render_report
from streaming_app.local.rack_bytes import RackBytes
from streaming_app.local.row_check import RowCheck

RACKS = ("az-a", "az-b", "az-c")
GOOD_BYTES = RackBytes({(rack, rack): 70_000_000 for rack in RACKS})
GOOD = DemoResult(
    wanted_count=1_000_000,
    acknowledged_count=1_000_000,
    rows=RowCheck(1_000_000, 1_000_000, 1_000_000, 0, 0),
    malformed_count=0,
    racks=RACKS,
    counted=GOOD_BYTES,
    served=GOOD_BYTES,
    leader_only=RackBytes({("az-a", "az-a"): 70_000_000, ("az-b", "az-a"): 140_000_000}),
    batch_count=9,
    lag_records=0,
    stop_exit_code=143,
    query_s=100.4,
    total_s=131.0,
    places=(("Parquet", "target/demo/orders"),),
)


def mostly_local(local: int, remote: int) -> RackBytes:
    return RackBytes({("az-a", "az-a"): local, ("az-a", "az-b"): remote})


def test_a_good_run_has_no_problem():
    assert find_problems(GOOD) == ()
    assert render_report(GOOD).splitlines()[-1] == (
        "Every row is there exactly once, and the bytes stayed in their racks."
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"acknowledged_count": 999_999}, "1 orders were not acknowledged by the brokers."),
        ({"rows": RowCheck(1_000_001, 1_000_001, 1_000_001, 0, 0)}, "acknowledged 1,000,000 orders and hold 1,000,001"),
        ({"rows": RowCheck(999_999, 999_999, 1_000_000, 1, 0)}, "1 rows are missing"),
        ({"rows": RowCheck(1_000_002, 1_000_000, 1_000_000, 0, 0)}, "2 rows are in the Parquet more than once"),
        ({"rows": RowCheck(1_000_001, 1_000_001, 1_000_000, 0, 1)}, "1 rows have offsets that no broker holds"),
        ({"malformed_count": 3}, "3 rows could not be parsed"),
        ({"lag_records": 12}, "a lag of 12 records"),
        ({"lag_records": None}, "a lag of unknown records"),
        ({"stop_exit_code": 0}, "exit code 0, not 143"),
        ({"stop_exit_code": None}, "exit code unknown, not 143"),
    ],
)
def test_each_thing_that_is_wrong_is_a_problem_of_its_own(changes, sentence):
    result = replace(GOOD, **changes)
    assert any(sentence in problem for problem in find_problems(result))
    assert "PROBLEM: " in render_report(result)
    assert "exactly once" not in render_report(result)


def test_the_local_share_must_be_99_percent_by_both_measures():
    just_enough, too_little = mostly_local(9_900, 100), mostly_local(9_899, 101)
    assert find_problems(replace(GOOD, counted=just_enough, served=just_enough)) == ()
    assert find_problems(replace(GOOD, counted=too_little, served=just_enough)) == (
        "By the executors' counters only 98.9 % of the bytes were local.",
    )
    assert find_problems(replace(GOOD, counted=just_enough, served=too_little)) == (
        "By the brokers' request logs only 98.9 % of the bytes were local.",
    )


def test_nothing_read_at_all_is_a_problem():
    nothing = replace(GOOD, counted=RackBytes(), served=RackBytes())
    assert len(find_problems(nothing)) == 2


def test_counters_must_agree_with_what_brokers_served():
    problems = find_problems(replace(GOOD, counted=mostly_local(1_000, 0), served=mostly_local(1_020, 0)))
    assert problems == ("Executors counted 1,000 bytes, brokers served 1,020.",)


def test_a_share_is_never_rounded_up():
    report = render_report(replace(GOOD, counted=mostly_local(999_999, 1)))
    assert "99.9 %" in report


def test_the_report_fits_80_columns_and_says_the_figures():
    report = render_report(replace(GOOD, leader_only=GOOD_BYTES))
    assert max(len(line) for line in report.splitlines()) <= 80
    for text in ("1,000,000", "70,000,000", "az-a", "100.0 %", "target/demo/orders"):
        assert text in report


def test_a_rack_that_nobody_expected_has_a_row_and_a_column():
    report = render_report(replace(GOOD, counted=RackBytes({("", "az-x"): 5})))
    assert "no rack" in report
    assert "az-x" in report
