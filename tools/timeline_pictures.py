"""Makes the pictures of docs/verbs/timeline.md from transcripts of real jobs.

    .venv/bin/python tools/timeline_pictures.py            all, or those that are named
    .venv/bin/python tools/timeline_pictures.py --check    exit code 1 if one is not current

Needs Chromium and Playwright (the dependency group `test`).
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from matplotlib.image import imread  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

from ncclscope.web.page_server import PageServer  # noqa: E402
from ncclscope.web.routes import Routes  # noqa: E402
from ncclscope.web.scene import Lane, Scene  # noqa: E402
from ncclscope.web.session import Timeline  # noqa: E402
from tests.support.player import TRANSCRIPTS  # noqa: E402
from tests.support.writer import from_transcript  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
TOLERANCE = 0.25  # of a colour's range, for one pixel
MOST_DIFFERING = 0.02  # of all pixels: other fonts stay below, a moved lane does not
_PATIENCE_S = 120.0  # on a busy machine
Address = dict[str, str]


def lanes(lane: Lane) -> Iterator[Lane]:
    """All lanes below one."""
    for child in lane.children.values():
        yield child
        yield from lanes(child)


def rows(scene: Scene, kind: str, rank: int = 0) -> list[int]:
    """Numbers of the rows of a kind on one rank."""
    found = []
    for lane in lanes(scene.root):
        if lane.ids.get("rank") == rank:
            found += lane.tracks.get(kind, [])
    return found


def span(scene: Scene, row: int, item: int) -> tuple[int, int]:
    """A bar's times since the scene's first."""
    one = scene.rows[row]
    times = (one.bars.start_ns[item], one.bars.end_ns[item])
    return tuple(one.to_scene(int(time)) - scene.first_ns for time in times)  # type: ignore[return-value]


def address(
    scene: Scene,
    first: float,
    last: float,
    unfold: tuple[str, ...] = (),
    hide: tuple[str, ...] = (),
    ranks: tuple[int, ...] = (),
    pin: tuple[int, int] | None = None,
    fold: Callable[[Lane], bool] = lambda lane: True,
) -> Address:
    """The address of a view: lanes of these levels unfolded, kinds hidden."""
    flipped = [lane.key for lane in lanes(scene.root) if lane.level in unfold and fold(lane)]
    given = {"t": f"{round(first)},{round(last - first)}", "fold": "~".join(flipped)}
    given |= {"hide": ",".join(hide)} if hide else {}
    given |= {"ranks": ",".join(map(str, ranks))} if ranks else {}
    if pin:
        start, _ = span(scene, *pin)
        given["pin"] = f"{start}@{scene.rows[pin[0]].key}"
    return given


def straggler(scene: Scene) -> Address:
    """The first look: one rank is late for every operation."""
    start, _ = span(scene, rows(scene, "operation")[0], 8)
    _, end = span(scene, rows(scene, "operation")[0], 15)
    hide = ("KernelCh", "channel")
    return address(scene, start - 5e6, end + 5e6, hide=hide)


def device_per_thread(scene: Scene) -> Address:
    """From the user's call down to the proxy thread, steps left out."""
    row = rows(scene, "GroupApi")[0]
    start, _ = span(scene, row, 6)
    _, end = span(scene, rows(scene, "operation")[0], 6)
    hide = ("ProxyStep", "bandwidth", "channel", "part", "P2p", "P2pApi")
    return address(scene, start - 60e3, end + 80e3, ("thread", "proxy", "channel"), hide)


def proxy_steps(scene: Scene) -> Address:
    """Steps with their states, below their proxy ops."""
    row = rows(scene, "ProxyOp")[0]
    start, end = span(scene, row, 3)
    hide = ("bandwidth", "channel", "KernelCh", "GroupApi", "CollApi", "KernelLaunch", "Group")
    return address(
        scene, start - (end - start) / 12, end + (end - start) / 12, ("thread", "proxy"), hide,
        ranks=(0,), fold=lambda lane: lane.level == "thread" or "channel 0" in lane.title,
    )  # fmt: skip


def several_ranks(scene: Scene) -> Address:
    """Two ranks in each process, each called by a thread of its own."""
    calls = [span(scene, rows(scene, "GroupApi", rank)[0], 9) for rank in (0, 1)]
    hide = ("bandwidth", "ProxyStep", "ProxyOp", "ProxyCtrl", "KernelCh")
    start, end = min(start for start, _ in calls), max(end for _, end in calls)
    return address(scene, start - 30e3, end + 60e3, ("thread",), hide)


def aggregated(scene: Scene) -> Address:
    """Five collectives in one group: one launch, one Group."""
    row = rows(scene, "GroupApi")[0]
    start, _ = span(scene, row, 46)
    hide = ("bandwidth", "ProxyStep", "ProxyOp", "ProxyCtrl", "KernelCh", "part", "P2p", "P2pApi")
    return address(scene, start - 30e3, start + 320e3, ("thread", "channel"), hide)


def across_ranks(scene: Scene) -> Address:
    """One collective on all ranks, joined; its call and its network work below."""
    row = rows(scene, "operation")[0]
    start, end = span(scene, row, 9)
    hide = ("bandwidth", "ProxyStep", "KernelCh", "KernelLaunch", "Group", "ProxyCtrl")
    return address(scene, start - 4e6, end + 16e6, ("thread",), hide, pin=(row, 9))


TOGETHER = {"several-ranks": 2}  # ranks whose callbacks are taken as one process's
WORLD = {
    "straggler": ("2.28.9-v5-4ranks-straggler", straggler, 580),
    "device-per-thread": ("2.28.9-v5-2ranks", device_per_thread, 900),
    "proxy-steps": ("2.28.9-v5-4ranks-straggler", proxy_steps, 560),
    "several-ranks": ("2.28.9-v5-4ranks-straggler", several_ranks, 560),
    "aggregated": ("2.28.9-v5-2ranks", aggregated, 700),
    "across-ranks": ("2.28.9-v5-4ranks-straggler", across_ranks, 900),
    "hang": ("2.28.9-v5-3ranks-hang", None, 620),
}


def take(browser: Any, capture: Path, file: Path, view: Any, height: int, dark: bool) -> None:
    """One picture of one capture."""
    timeline = Timeline(capture)
    server = PageServer(Routes(timeline))
    timeline.start()
    server.start()
    while timeline.progress or timeline.scene.model is None:
        time.sleep(0.05)
    page = browser.new_page(viewport={"width": 1360, "height": height})
    page.emulate_media(color_scheme="dark" if dark else "light")
    given = urlencode(view(timeline.scene)) if view else ""
    page.goto(f"{server.address}#{given}")
    # Not by wait_for_function: the page forbids to evaluate texts.
    end = time.monotonic() + _PATIENCE_S
    while not page.evaluate("!!window.timeline && timeline.ready"):
        assert time.monotonic() < end, "the page draws nothing"
        page.wait_for_timeout(50)
    shown, before = page.screenshot(), b""
    while shown != before:  # what comes after the first drawing: lines, details
        page.wait_for_timeout(700)
        shown, before = page.screenshot(), shown
    file.write_bytes(shown)
    page.close()
    server.stop()
    timeline.stop()


def differing_share(a: Path, b: Path) -> float:
    """The share of pixels that differ by more than fonts and their smoothing do; 1: other sizes."""
    first, second = (imread(file)[..., :3] for file in (a, b))
    if first.shape != second.shape:
        return 1.0
    return float((abs(first - second).max(axis=2) > TOLERANCE).mean())


def take_by_name(browser: Any, name: str, folder: Path, file: Path) -> None:
    """One picture of the pages, of a capture that is written into the folder."""
    job, view, height = WORLD[name]
    capture = folder / name / {"device-per-thread": "job"}.get(name, name)
    from_transcript(TRANSCRIPTS / job, capture, ranks_per_process=TOGETHER.get(name, 1))
    take(browser, capture, file, view, height, dark=name == "hang")


def main() -> None:
    """All pictures, or those that are named; with --check, a comparison of all."""
    checks = sys.argv[1:] == ["--check"]
    wanted = list(WORLD) if checks else sys.argv[1:] or list(WORLD)
    PICTURES.mkdir(exist_ok=True)
    old = []
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name in wanted:
            kept = PICTURES / f"{name}.png"
            file = Path(directory) / f"{name}.png" if checks else kept
            take_by_name(browser, name, Path(directory), file)
            share = differing_share(file, kept)
            print(f"{name}: {100 * share:.2f} % of its pixels differ", flush=True)
            if share > MOST_DIFFERING:
                old.append(name)
        browser.close()
    if old:
        raise SystemExit(f"not current: {', '.join(old)}; take them again without --check")


if __name__ == "__main__":
    main()
