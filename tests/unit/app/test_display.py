import io

import pytest

from streaming_app.local.display import Display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_terminal_has_one_line_that_is_rewritten(clock):
    stream = Terminal()
    display = Display(stream, clock)
    display.step("starting")
    for text in ("read 1", "read 2"):
        clock.now_s += 1
        display.update(text)
    display.step("stopping")
    assert stream.getvalue() == (
        "[   0 s] starting\n\r\x1b[K[   1 s] read 1\r\x1b[K[   2 s] read 2\n[   2 s] stopping\n"
    )


def test_a_line_that_is_too_long_for_the_terminal_is_cut(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    Display(stream, clock).update("x" * 50)
    assert stream.getvalue() == "\r\x1b[K" + ("[   0 s] " + "x" * 50)[:19]


def test_a_file_gets_a_line_every_few_seconds(clock):
    stream = io.StringIO()
    display = Display(stream, clock)
    display.step("starting")
    for number in range(25):
        clock.now_s += 1
        display.update(f"read {number}")
    display.end_line()
    assert stream.getvalue() == "[   0 s] starting\n[  10 s] read 9\n[  20 s] read 19\n"
