"""A wait ends with the first true look, and one in vain tells what was waited for."""

import pytest

from tests.waiting import wait_for


def test_the_first_true_look_is_returned() -> None:
    looks = iter([None, 0, "", "seen", "later"])
    assert wait_for(lambda: next(looks), "a look", poll_s=0.0) == "seen"
    assert next(looks) == "later"


def test_a_wait_in_vain_names_what_it_waited_for_and_why() -> None:
    with pytest.raises(AssertionError) as caught:
        wait_for(lambda: None, "pigs to fly", 0.0, explain=lambda: "the end of their log")
    assert str(caught.value) == "waited 0 s in vain for pigs to fly\nthe end of their log"


def test_what_became_true_while_the_time_ran_out_is_seen() -> None:
    looks = iter([False, True])
    assert wait_for(lambda: next(looks), "a late look", 0.05, poll_s=0.2)
