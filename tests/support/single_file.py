"""The same requests to the timeline's server and to its single file."""

import json
import math
import random
import subprocess
from typing import Any

import pytest

from ncclscope.model.schema import NONE
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
from ncclscope.web.single_file import page_data
from tests.support.model_builders import WORDS
from tests.support.paths import ROOT

WEB = ROOT / "web"
Request = list[Any]  # a method of the page's source, and its arguments


def random_filter(draw: random.Random) -> dict[str, Any]:
    chosen = {
        "functions": draw.sample(range(12), 4),
        "sources": draw.sample(range(8), 5),
        "leastBytes": 1 << draw.randrange(6, 12),
        "mostBytes": 1 << draw.randrange(9, 15),
    }
    return {name: value for name, value in chosen.items() if draw.random() < 0.3}


def random_search(draw: random.Random) -> str:
    words = [
        *("rank:3", "rank:99", "rank:a", "seq:7", "peer=2", "comm:tensor", "comm:É", "order:1"),
        *("state:flight", "source:gpu-e", "source:host", "world", "ring", "ll128", "zzz", ">=1"),
        *(
            ">1K",
            "<2kb",
            ">20us",
            "<50µs",
            ">0.05ms",
            "<1s",
            ">3parsecs",
            ">5constructor",
            "captured",
        ),
        *WORDS["function"],
    ]
    return " ".join(draw.sample(words, draw.choice([1, 1, 2, 3])))


def random_requests(timeline: Timeline, draw: random.Random) -> list[Request]:
    scene = timeline.scene
    span = scene.last_ns - scene.first_ns
    requests: list[Request] = [["find", ""]]
    for _ in range(60):
        first = draw.uniform(-0.1, 1) * span
        last = first + draw.random() ** 3 * span
        rows = sorted(draw.sample(range(len(scene.rows)), draw.randrange(1, len(scene.rows))))
        row = draw.randrange(len(scene.rows))
        requests += [
            ["span", rows, first, last, random_filter(draw)],
            ["find", random_search(draw)],
            ["item", row, draw.randrange(len(scene.rows[row].bars)), {}],
            ["marks", rows[:3], first, first + (last - first) / 50],
        ]
    return requests


def ask_server(routes: Routes, request: Request) -> Any:
    """The answer of the server to a request that the page would send."""
    method, *arguments = request
    query: dict[str, Any] = {}
    if method == "find":
        query = {"q": arguments[0]}
    elif method == "item":
        query = {"row": arguments[0], "item": arguments[1]}
    else:
        rows, first, last, *filters = arguments
        query = {"rows": ",".join(map(str, rows)), "t0": math.floor(first), "t1": math.ceil(last)}
        names = {"leastBytes": "least", "mostBytes": "most"}
        for name, value in filters[0].items() if filters else ():
            text = ",".join(map(str, value)) if isinstance(value, list) else value
            query[names.get(name, name)] = text
    answer = routes(f"api/{method}", {name: str(value) for name, value in query.items()})
    return json.loads(answer.body)


def ask_file(data: dict[str, Any], requests: list[Request]) -> list[Any]:
    ran = subprocess.run(
        ["node", WEB / "test" / "answer.mjs"],
        input=json.dumps({"data": data, "requests": requests}),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    answers: list[Any] = json.loads(ran.stdout)
    return answers


def assert_same(file: Any, server: Any, where: str) -> None:
    """Equal, but for the last digits of sums of floats."""
    if file == server:
        return
    if isinstance(server, dict):
        assert set(file) == set(server), where
        for name in server:
            assert_same(file[name], server[name], f"{where}.{name}")
    elif isinstance(server, list):
        assert len(file) == len(server), where
        for place, (one, other) in enumerate(zip(file, server, strict=True)):
            assert_same(one, other, f"{where}[{place}]")
    elif isinstance(server, float) and isinstance(file, (int, float)):
        assert file == pytest.approx(server, rel=1e-12), where
    else:
        assert file == server, where


def compare_answers(timeline: Timeline, seed: int) -> dict[str, int]:
    """Compares answers to requests by chance; how much the server found for them."""
    routes, requests = Routes(timeline), random_requests(timeline, random.Random(seed))
    answers = ask_file(page_data(timeline), requests)
    counts = {"matches": 0, "groups": 0, "instances": 0, "parents": 0, "states": 0}
    for request, file in zip(requests, answers, strict=True):
        server = ask_server(routes, request)
        for name in counts:
            counts[name] += len(server.get(name, ()))
        if request[0] == "item":
            _make_comparable(file, server)
        assert_same(file, server, json.dumps(request))
    return counts


def _make_comparable(file: dict[str, Any], server: dict[str, Any]) -> None:
    """The order of members is that of the page, or of the model; the file leaves out some keys."""
    for answer in (file, server):
        answer["instance"].sort(key=lambda member: (member["row"], member["item"]))
    server.pop("communicator", None)
    server.setdefault("instance_number", NONE)
    for field in server["fields"]:
        field.setdefault("unit", "")
