"""The search of the timeline."""

from typing import Any

import pytest

from ncclscope.web.lookup import Lookup
from ncclscope.web.search import search
from tests.support.model_builders import model, operation, world
from tests.support.model_timelines import timeline_of


@pytest.fixture(scope="module")
def lookup() -> Lookup:
    rows: list[dict[str, Any]] = [
        {"function": "AllReduce", "size_bytes": 1 << 20, "duration_ns": 30_000, "sequence": 12},
        {"function": "AllGather", "size_bytes": 2048, "duration_ns": 900, "sequence": 3},
        {"function": "Send", "size_bytes": 100, "peer": 3, "source": "host", "form": "send"},
        {"function": "AllReduce", "size_bytes": 4, "state": "captured"},
    ]
    operations = [
        operation(
            **{"communicator": place % 2, "rank": 0, "start_ns": 10**6 * place, "source": "gpu"}
            | row
        )
        for place, row in enumerate(rows, 1)
    ]
    communicators = [{"id": n, "name_inferred": 0, "ranks": 4, "nodes": 1} for n in (1, 2)]
    members = [member | {"communicator": comm} for comm in (0, 1) for member in world(4, 4)]
    made = model(operations, [], communicators, ["world", "tp:0-3"], members)
    return Lookup(timeline_of(made).scene, made.path)


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("allre", ["AllReduce"]),
        ("all", ["AllReduce", "AllGather"]),
        ("ALL gpu", ["AllReduce", "AllGather"]),
        ("rank:0", ["AllReduce", "AllGather", "Send"]),
        ("rank:1", []),
        ("rank:x", []),
        ("seq=12", ["AllReduce"]),
        ("op:1", ["AllGather"]),
        ("op:99", []),
        ("peer:3", ["Send"]),
        ("comm:tp", ["AllReduce", "Send"]),
        ("source:host", ["Send"]),
        ("state:captured", []),
        (">1K", ["AllReduce", "AllGather"]),
        (">1K <1MB", ["AllGather"]),
        (">20us", ["AllReduce"]),
        (">20µs", ["AllReduce"]),
        (">20μs", ["AllReduce"]),
        ("<0.001ms", ["AllGather"]),
        (">5parsecs", []),
        ("", []),
    ],
)
def test_a_search_finds_the_operations_that_match_all_terms(
    lookup: Lookup, text: str, functions: list[str]
) -> None:
    result = search(lookup, text)
    assert [match["function"] for match in result["matches"]] == functions
    assert result["count"] == len(functions)
