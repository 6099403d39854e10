"""Timelines of captures, and what they answer to the page."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclscope.http.server import Response
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline


def wait_until_done(timeline: Timeline) -> None:
    """Until everything of a capture is in the scene."""
    end = time.monotonic() + 120
    while timeline.progress or timeline.scene.model is None:
        assert time.monotonic() < end, timeline.progress
        assert timeline.trouble == ""
        time.sleep(0.02)


class TimelineClient:
    """A timeline and its answers."""

    def __init__(self, capture: Path, whole: bool = True) -> None:
        self.timeline = Timeline(capture)
        self.timeline.start()
        if whole:
            wait_until_done(self.timeline)
        self.routes = Routes(self.timeline)

    @property
    def scene(self) -> Any:
        return self.timeline.scene

    def ask(self, path: str, **query: object) -> Any:
        answer: Response = self.routes(
            f"api/{path}", {name: str(value) for name, value in query.items()}
        )
        assert answer.status == 200
        return json.loads(answer.body) if answer.content_type == "application/json" else answer.body

    def rows(self, kind: str) -> list[int]:
        return [n for n, row in enumerate(self.scene.rows) if row.kind == kind]


def all_lanes(lanes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All lanes of a scene or below a lane, parents first."""
    for lane in lanes["lanes"] if "lanes" in lanes else lanes["children"]:
        yield lane
        yield from all_lanes(lane)
