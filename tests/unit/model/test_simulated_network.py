"""Connections in virtual time: order, losses before and after the broker, patience."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from connector.fetch.actions import Action, SendMetadata
from tests.model.network import Answer, Failure, NetworkSettings, SimulatedNetwork, Timeline


class Client:
    """One client, one broker that answers each action with itself, and the network between them."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.taken: list[Action] = []
        self.answers_at_once = True
        self.is_up = True
        self._waiting: list[Callable[[], None]] = []
        settings = NetworkSettings(longest_delay_ms=9, connect_timeout_ms=100)
        self.network = SimulatedNetwork(settings, self.timeline, Random(1), self._take, lambda _: self.is_up)

    def _take(self, node_id: int, action: Action, deliver: Callable[[object], None]) -> None:
        assert node_id == 1
        self.taken.append(action)
        if self.answers_at_once:
            deliver(action)
        else:
            self._waiting.append(lambda: deliver(action))

    def answer(self) -> None:
        self._waiting.pop(0)()

    def send(self, *names: str) -> None:
        for name in names:
            self.network.submit(1, SendMetadata((name,)), timeout_ms=1_000)

    def events(self, until_ms: int) -> list[str]:
        """Let time pass; return topics that were answered, and problems."""
        told: list[str] = []
        while self.timeline.now_ms < until_ms:
            self.timeline.now_ms += 1
            self.timeline.run_due()
            self.network.check_deadlines()
            told.extend(map(what_of, self.network.take_events()))
        return told

    def names_taken(self) -> list[str]:
        return [each.topics[0] for each in self.taken if isinstance(each, SendMetadata)]


def what_of(event: Answer | Failure) -> str:
    if isinstance(event, Failure):
        return event.problem
    assert isinstance(event.action, SendMetadata)
    assert event.value == event.action
    return event.action.topics[0]


def test_answers_come_in_the_order_of_the_requests() -> None:
    client = Client()
    client.send("a", "b", "c")
    assert client.events(200) == ["a", "b", "c"]


def test_a_broker_looks_at_the_next_request_when_the_one_before_is_answered() -> None:
    client = Client()
    client.answers_at_once = False
    client.send("a", "b")
    assert client.events(200) == []
    assert client.names_taken() == ["a"]
    client.answer()
    assert client.events(300) == ["a"]
    assert client.names_taken() == ["a", "b"]


def test_a_lost_request_never_reached_the_broker_and_a_lost_answer_did() -> None:
    client = Client()
    client.network.lose_request(1, until_ms=200)
    client.send("a")
    assert client.events(200) == ["connection reset"]
    assert client.names_taken() == []
    client.network.lose_answer(1, until_ms=400)
    client.send("b")
    assert client.events(400) == ["connection reset"]
    assert client.names_taken() == ["b"]
    client.send("c")
    assert client.events(600) == ["c"]


def test_a_connection_ends_when_its_oldest_request_is_not_answered_in_time() -> None:
    client = Client()
    client.answers_at_once = False
    client.send("a", "b")
    assert client.events(1_000) == []
    assert client.events(1_100) == ["no answer in time"], "one failure for both"


def test_no_connection_is_made_to_a_broker_that_is_down_refuses_or_is_silent() -> None:
    client = Client()
    client.is_up = False
    client.send("a")
    assert client.events(50) == ["connection reset"]
    client.is_up = True
    client.network.refuse(1, until_ms=200)
    client.send("a")
    assert client.events(200) == ["connection reset"]
    client.network.hold(1, until_ms=5_000)
    client.send("a")
    assert client.events(1_000) == ["no answer in time"], "connecting has a patience of its own"
    assert client.names_taken() == []


def test_what_is_held_arrives_late_and_in_order() -> None:
    client = Client()
    client.send("a")
    assert client.events(100) == ["a"]
    client.network.hold(1, until_ms=500)
    client.send("b", "c")
    assert client.events(500) == []
    assert client.events(600) == ["b", "c"]


def topic_is_m(action: Action) -> bool:
    return isinstance(action, SendMetadata) and action.topics == ("m",)


def test_nothing_unwanted_reaches_the_next_read() -> None:
    client = Client()
    client.send("a")
    assert client.events(40) == ["a"]
    client.send("b")
    assert client.network.close_unwanted(topic_is_m) == []
    client.send("c")
    assert client.events(300) == ["c"]


def test_what_is_wanted_stays_awaited_unless_it_shares_a_connection_with_what_is_not() -> None:
    client = Client()
    client.send("m")
    assert client.network.close_unwanted(topic_is_m) == []
    assert client.events(100) == ["m"]
    client.send("m", "b")
    assert client.network.close_unwanted(topic_is_m) == [SendMetadata(("m",))]
    assert client.events(300) == []
