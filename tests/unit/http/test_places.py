"""Who leaves a server whose places are taken."""

import asyncio
from typing import Any

from ncclscope.http.limits import Limits
from ncclscope.http.places import Places


class Connection:
    """Stands for the task of a connection."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def take(places: Places, address: str) -> Any:
    connection: Any = Connection()
    task: asyncio.Task[None] = connection
    places.take(task, address)
    return connection


def test_an_address_has_a_limit_and_loses_its_own_connections() -> None:
    places = Places(Limits(connections=20, from_address=3, for_loopback=4))
    other = take(places, "10.0.0.2")
    flood = [take(places, "10.0.0.1") for _ in range(6)]
    assert [link.cancelled for link in flood] == [True] * 3 + [False] * 3
    assert not other.cancelled


def test_other_machines_never_take_the_places_of_this_one() -> None:
    places = Places(Limits(connections=8, from_address=8, for_loopback=2))
    others = [take(places, f"10.0.0.{number}") for number in range(20)]
    assert sum(not link.cancelled for link in others) == 6
    own = [take(places, "127.0.0.1") for _ in range(2)]
    assert not any(link.cancelled for link in own)
    assert sum(not link.cancelled for link in others) == 6


def test_the_busiest_address_makes_room_for_this_machine() -> None:
    places = Places(Limits(connections=8, from_address=8, for_loopback=2))
    few, many = take(places, "10.0.0.1"), [take(places, "10.0.0.2") for _ in range(5)]
    own = [take(places, "127.0.0.1") for _ in range(3)]
    assert not few.cancelled
    assert not any(link.cancelled for link in own)
    assert [link.cancelled for link in many] == [True, False, False, False, False]


def test_who_was_answered_last_leaves_last() -> None:
    places = Places(Limits(connections=2, from_address=2, for_loopback=0))
    first, second = take(places, "127.0.0.1"), take(places, "127.0.0.1")
    places.touch(first)
    take(places, "127.0.0.1")
    assert (first.cancelled, second.cancelled) == (False, True)
