"""Frames of the timeline's page: full lanes, dragged by the mouse, drawn without a GPU.

The capture is simulated (tests/writer): only that its lanes are full matters. Other work on the
machine makes frames late that cost little, so the browser's CPU time a frame is told beside them.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.model_speed import verdict
from benchmarks.results import ROOT, publish, table
from ncclscope.web.page_server import PageServer
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
from tests.support.timelines import wait_until_done
from tests.support.writer import SyntheticSpec, Work, synthetic

FRAME_BAR_MS = 1000 / 30
WIDTH, HEIGHT = 1_700 + 252 + 12, 1_060  # the axis, the lanes' names, the scroll bar
ROWS = 40  # at least, in view
FRAMES = 240
# Pixels of an operation: what is drawn differs by how wide bars are.
VIEWS = {"the whole run": None, "bars of 8 pixels": 8, "bars of 40 pixels, named": 40}
_LONG_NS = (150_000, 400_000)  # beside the gaps between operations
SPEC = SyntheticSpec(
    processes=8, operations=20_000, gap_ns=(20_000, 30_000),
    mix=tuple(
        Work(name, 65_536, wire_ns=_LONG_NS) for name in ("AllReduce", "AllGather", "ReduceScatter")
    ),
)  # fmt: skip

_DRAG = """frames => new Promise(done => {
    const canvas = document.getElementById('lanes'), box = canvas.getBoundingClientRect();
    const x0 = box.left + 252 + box.width / 2, y = box.top + 300, times = [];
    const fire = (type, x) => canvas.dispatchEvent(new MouseEvent(type, {
        clientX: x, clientY: y, bubbles: true, buttons: type === 'mouseup' ? 0 : 1}));
    fire('mousedown', x0);
    const step = () => {
        times.push(performance.now());
        fire('mousemove', x0 + 300 * Math.sin(times.length / 40));
        if (times.length <= frames) requestAnimationFrame(step);
        else { fire('mouseup', x0); done(times); }
    };
    requestAnimationFrame(step);
})"""


@dataclass(frozen=True, slots=True)
class Frames:
    """What frames of one view took."""

    ms: tuple[float, ...]  # from each to the next
    renderer_ms: float  # of CPU a frame, over all threads
    browser_ms: float  # the same, of all processes of the browser

    def percentile(self, share: int) -> float:
        """Of the times between frames."""
        return float(np.percentile(self.ms, share))


def settle(page: Any) -> None:
    """Until everything is drawn."""
    page.wait_for_timeout(100)
    while not page.evaluate("!!window.timeline && timeline.ready"):
        page.wait_for_timeout(50)
    page.wait_for_timeout(300)


def cpu_s(browser: Any) -> dict[str, float]:
    """CPU time by kind of process."""
    session = browser.new_browser_cdp_session()
    found: dict[str, float] = {}
    for one in session.send("SystemInfo.getProcessInfo")["processInfo"]:
        found[one["type"]] = found.get(one["type"], 0.0) + one["cpuTime"]
    session.detach()
    return found


def drag(browser: Any, page: Any, pixels: int | None) -> Frames:
    """Moves a view to and fro, and tells what that took."""
    span_ns = page.evaluate("timeline.scene.span_ns")
    if pixels is None:
        first, last = 0, span_ns
    else:
        length_ns = span_ns / SPEC.operations * 1_700 / pixels
        first, last = (span_ns - length_ns) / 2, (span_ns + length_ns) / 2
    page.evaluate("([first, last]) => timeline.fit(first, last)", [first, last])
    settle(page)
    before = cpu_s(browser)
    times = page.evaluate(_DRAG, FRAMES)
    after = cpu_s(browser)
    spent = {kind: (after[kind] - before[kind]) * 1e3 / FRAMES for kind in after}
    return Frames(tuple(np.diff(times).tolist()), spent["renderer"], sum(spent.values()))


def opened(browser: Any, server: PageServer) -> Any:
    """The page with all its rows in view."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(server.address)
    settle(page)
    rows = page.evaluate(
        "timeline.lines.filter(l => l.strips.length && l.y < "
        "document.getElementById('lanes').clientHeight).length"
    )
    if rows < ROWS:
        raise SystemExit(f"only {rows} rows are in view")
    return page


def measure(server: PageServer) -> dict[str, Frames]:
    """By view, in a browser of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = opened(browser, server)
        found = {name: drag(browser, page, pixels) for name, pixels in VIEWS.items()}
        browser.close()
    return found


def main() -> None:
    """Makes the capture, drags its page, and publishes."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        capture = Path(directory) / "capture"
        synthetic(capture, SPEC)
        timeline = Timeline(capture)
        server = PageServer(Routes(timeline))
        timeline.start()
        server.start()
        wait_until_done(timeline)
        found = measure(server)
        server.stop()
        timeline.stop()
    rows: list[list[object]] = [
        [
            view,
            " · ".join(f"{frames.percentile(share):.1f}" for share in (50, 95, 99)),
            f"{frames.renderer_ms:.1f}",
            f"{frames.browser_ms:.1f}",
            f"p95 ≤ {FRAME_BAR_MS:.0f} ms",
            verdict(frames.percentile(95) <= FRAME_BAR_MS),
        ]
        for view, frames in found.items()
    ]
    header = ["view", "ms a frame: p50 · p95 · p99", "CPU, renderer", "CPU, browser", "bar", ""]
    note = (
        f"{ROWS} full rows of 1,700 pixels or more, dragged for {FRAMES} frames in Chromium "
        "without a GPU. CPU: ms a frame, over all threads."
    )
    publish("timeline-frames", f"{table(header, rows)}\n\n{note}")
