"""The timeline's page in a browser, as tests use it."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncclscope.web.page_server import PageServer
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
from tests.support.timelines import wait_until_done

PATIENCE_S = 40  # longer than any page takes on a busy machine


@dataclass
class Page:
    """One page on one capture, with everything that went wrong on it."""

    page: Any
    timeline: Timeline
    server: PageServer | None
    troubles: list[str] = field(default_factory=list)

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)

    def wait(self, script: str) -> Any:
        """Until it is true."""
        end = time.monotonic() + PATIENCE_S
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never: {script}; {self.troubles}"
            self.page.wait_for_timeout(30)
        return value

    def settle(self) -> None:
        """Until everything is drawn."""
        self.page.wait_for_timeout(60)
        self.wait("!!window.timeline && timeline.ready")

    def open(self, address: str = "") -> "Page":
        self.page.goto("about:blank")
        assert self.server is not None
        self.page.goto(self.server.address + address)
        self.settle()
        return self

    def key(self, name: str) -> None:
        self.page.keyboard.press(name)
        self.settle()

    def place(self, row: int, item: int) -> dict[str, float]:
        """Where a bar is on the screen."""
        scene = self.timeline.scene
        bars, shown = scene.rows[row].bars, scene.rows[row]
        start, end = (
            shown.to_scene(int(v[item])) - scene.first_ns for v in (bars.start_ns, bars.end_ns)
        )
        place = {"row": row, "item": item, "start_ns": start, "end_ns": end}
        found = self.page.evaluate("place => timeline.positionOf(place)", place)
        assert found is not None, "its lane is not shown"
        return dict(found)

    def hover(self, row: int, item: int) -> str:
        """The text of the box at a bar."""
        at = self.place(row, item)
        self.page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
        self.wait(
            f"timeline.current.hovered?.row === {row} && !document.getElementById('tooltip').hidden"
        )
        return str(self.run("document.getElementById('tooltip').innerText"))

    def click(self, row: int, item: int) -> None:
        at = self.place(row, item)
        self.page.mouse.click(at["x"] + min(at["width"] / 2, 200), at["y"] + at["height"] / 2)
        self.wait("!!timeline.current.pinned")
        self.settle()

    def pixel(self, x: float, y: float) -> list[int]:
        """The colour on the lanes' canvas."""
        script = """([x, y]) => {
            const c = document.getElementById('lanes'), b = c.getBoundingClientRect();
            const one = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
            one.drawImage(c, -(x - b.left) * devicePixelRatio, -(y - b.top) * devicePixelRatio);
            return [...one.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        }"""
        return list(self.page.evaluate(script, [x, y]))

    def rows(self, kind: str) -> list[int]:
        return [n for n, row in enumerate(self.timeline.scene.rows) if row.kind == kind]


def open_page(chromium: Any, capture: Path) -> Page:
    """A page on a timeline server of its own; what goes wrong on it is kept in `troubles`."""
    timeline = Timeline(capture)
    server = PageServer(Routes(timeline))
    timeline.start()
    server.start()
    wait_until_done(timeline)
    context = chromium.new_context(viewport={"width": 1400, "height": 860})
    page = Page(context.new_page(), timeline, server)
    page.page.on(
        "console",
        lambda m: page.troubles.append(m.text) if m.type in ("error", "warning") else None,
    )
    page.page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.page.on(
        "request",
        lambda r: (
            None
            if r.url.startswith((server.address, "data:", "about:"))
            else page.troubles.append(r.url)
        ),
    )
    return page


def close_page(page: Page) -> None:
    """Stops page and server; nothing may have gone wrong."""
    page.page.context.close()
    assert page.server is not None
    page.server.stop()
    page.timeline.stop()
    assert page.troubles == []
