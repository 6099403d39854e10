"""How JSON is written."""

import json
from collections import Counter
from typing import Any

import pytest

from ncclscope.json_answers import json_text


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        'ü\n"\\',
        None,
        True,
        1.0,
        -0.0,
        1e300,
        10**30,
        {"a": [], "b": {}, "c": [1, 2.5, "x", None, False, {"d": [[1], []]}], "e": ()},
        {"a": {1: "one", None: [2, {"x": 1}]}},
        {"a": {"b": Counter({"x": 1}), "c": (1, (2,))}},
    ],
)
def test_json_text_is_that_of_the_standard_library(value: Any) -> None:
    assert json_text(value) == json.dumps(value, indent=2, allow_nan=False)


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}])
def test_json_text_refuses_what_json_does_not_have(value: Any) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        json_text(value)
