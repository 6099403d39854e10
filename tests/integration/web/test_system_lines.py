"""Counters of the machine in the timeline: lanes, lines, and one file."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.analysis.run import Run
from ncclscope.simulation.scenario import Call, HostClock, Scenario
from ncclscope.system.sample_files import sample_files_in
from ncclscope.web.kinds import COUNTER
from ncclscope.web.single_file import page_data, thin_scene, write_html
from tests.support.fake_machine import Numbers, gpu, with_samples
from tests.support.timeline_page import Page, close_page, open_page
from tests.support.timelines import TimelineClient, all_lanes
from tests.support.writer.scenario import write_scenario

JOB = Scenario(
    ranks=4, ranks_per_host=2, steps=30, compute_ms=4, calls=(Call("world", "AllReduce", 1 << 20),),
    host_clocks=(HostClock(1, offset_ms=4000),),
)  # fmt: skip


def half(host: str, said: Numbers, at: int) -> None:
    """GPU 1 of node1 is at half its clock in the second half of the run."""
    if host == "node1" and at >= 30:
        said[gpu(1)] |= {"sm_clock_mhz": 870, "throttle_reasons": 0x40}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine") / "c"
    write_scenario(path, JOB, 1)
    return with_samples(path, half)


SHARES = (0.2, 0.4, 0.6, 0.8)  # of the run


def shown(
    asked: TimelineClient, track: dict[str, Any], title: str, share: float, zoom: int = 16
) -> float:
    """What a line shows at a share of the run."""
    row = track["rows"][[title for title, _ in track["lines"]].index(title)]
    begin, end = Run(asked.scene.model).extent
    pixel = int(begin + share * (end - begin) - asked.scene.first_ns) >> zoom
    line = np.frombuffer(asked.ask("line", z=zoom, i=pixel // 512, rows=row), np.float32)
    return float(line[pixel % 512])


def test_lanes_and_lines(capture: Path) -> None:
    asked = TimelineClient(capture)
    scene = asked.ask("scene")
    lanes = {lane["key"]: lane for lane in all_lanes(scene)}
    hosts = [lane for lane in lanes.values() if lane["level"] == "host"]
    assert [host["children"][-1]["level"] for host in hosts] == ["machine", "machine"]
    lane = lanes["h1/machine/gpu1"]
    assert lane["title"] == "GPU 1"
    (track,) = lane["tracks"]
    titles = [title for title, _ in track["lines"]]
    assert titles[:3] == ["utilisation", "clock", "slowed down"]
    assert len(track["rows"]) == len(track["lines"])
    # The run is what is shown, however long samplers were there.
    operations = [row for row in asked.scene.rows if row.kind != COUNTER]
    assert asked.scene.last_ns == max(
        int(row.to_scene(int(row.bars.end_ns[-1]))) for row in operations
    )

    def value(title: str, share: float) -> float:
        return shown(asked, track, title, share)

    assert 1740 <= value("clock", 0.2) <= 1755
    assert value("clock", 0.8) == pytest.approx(870)
    assert (value("slowed down", 0.2), value("slowed down", 0.8)) == (0, pytest.approx(1))
    assert value("NVLink", 0.3) == pytest.approx(180, rel=0.01)  # both ways
    row = track["rows"][titles.index("clock")]
    item = asked.ask("item", row=row, item=40)
    assert item["fields"] == [{"name": "clock", "value": 870, "unit": "MHz", "source": "host"}]
    rows = f"{track['rows'][0]}-{track['rows'][-1]}"
    assert asked.ask("marks", rows=rows, t0=0, t1=10**10)["parents"] == []
    assert asked.ask("tile", z=16, i=0, rows=rows)
    asked.timeline.stop()


def without_samples(capture: Path, first: int, last: int) -> None:
    """As if samplers had stood still from one sample to another."""
    for path in sample_files_in(capture):
        lines = path.read_text().splitlines(keepends=True)
        samples = [n for n, line in enumerate(lines) if line.startswith("[")]
        dropped = set(samples[first:last])
        path.write_text("".join(line for n, line in enumerate(lines) if n not in dropped))


@pytest.fixture(scope="module")
def gap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job, and nobody took samples in the middle of it."""
    path = tmp_path_factory.mktemp("gap") / "c"
    write_scenario(path, JOB, 1)
    without_samples(with_samples(path), 20, 40)
    return path


def test_while_nobody_took_samples_a_gauge_is_unknown(gap: Path) -> None:
    asked = TimelineClient(gap)
    lane = next(one for one in all_lanes(asked.ask("scene")) if one["key"] == "h1/machine/gpu1")
    (track,) = lane["tracks"]
    clock, traffic = (
        [shown(asked, track, title, share) for share in SHARES] for title in ("clock", "NVLink")
    )
    assert np.isnan(clock).tolist() == [False, True, True, False]
    assert [1740 <= value <= 1755 for value in clock] == [True, False, False, True]
    assert traffic == pytest.approx([180] * 4, rel=0.01)  # a total's mean is known all the same
    asked.timeline.stop()


def test_while_nobody_took_samples_the_page_draws_none(
    chromium: Any, gap: Path, tmp_path: Path
) -> None:
    """From its server and as one file: paper in between."""
    served = open_page(chromium, gap).open("#fold=h0/machine~h1/machine")
    assert _is_drawn(served) == [True, False, False, True]
    write_html(served.timeline, tmp_path / "page.html")
    served.page.goto(f"file://{tmp_path / 'page.html'}#fold=h0/machine~h1/machine")
    served.settle()
    served.troubles.clear()  # the file's own address
    assert _is_drawn(served) == [True, False, False, True]
    close_page(served)


def _clock_line(one: Page) -> dict[str, float]:
    """Where the line of a GPU's clock is, once it is in view."""
    line = one.run("""(() => {
        const l = timeline.lines.find(l => l.kind === 'counter' && l.lane.key === 'h1/machine/gpu1' && l.title === 'clock');
        document.getElementById('scroll').scrollTop = l.y - 200;
        return {y: l.y, height: l.height};
    })()""")
    one.page.wait_for_timeout(200)
    one.settle()
    left, top, width, scroll = one.run(
        "(() => { const b = document.getElementById('lanes').getBoundingClientRect(); return [b.left, b.top, b.width, document.getElementById('scroll').scrollTop]; })()"
    )
    y = top + 24 + line["y"] - scroll
    return {"left": left + 252, "width": width - 252, "y": y, "height": line["height"]}


def _is_drawn(one: Page) -> list[bool]:
    """Whether a clock's line has something below it, at shares of the run."""
    line = _clock_line(one)
    scene = one.timeline.scene
    begin, end = Run(scene.model).extent
    y = line["y"] + line["height"] * 0.8
    found = []
    for share in SHARES:
        ns = begin + share * (end - begin) - scene.first_ns
        x = one.run(f"({ns} - timeline.view.start) / timeline.view.nsPerPixel")
        red, _, blue = one.pixel(line["left"] + x, y)
        found.append(blue > red + 20)
    return found


def test_one_file_has_them_or_says_that_it_has_not(capture: Path) -> None:
    asked = TimelineClient(capture)
    data = page_data(asked.timeline)
    assert data["scene"]["left_out"] == ""
    assert [row["kind"] for row in data["rows"]].count(COUNTER) > 0
    smaller, left_out = thin_scene(asked.scene, 2_000)
    assert "counter" in left_out
    assert not any(row.kind == COUNTER for row in smaller.rows)
    asked.timeline.stop()


def test_no_samples_no_lane(capture: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(capture, tmp_path / "bare", ignore=shutil.ignore_patterns("system.*"))
    asked = TimelineClient(bare)
    assert not any(lane["level"] == "machine" for lane in all_lanes(asked.ask("scene")))
    asked.timeline.stop()


def test_the_page_draws_them(chromium: Any, capture: Path) -> None:
    one = open_page(chromium, capture)
    one.open()
    lines = one.run("timeline.lines.map(l => [l.title, l.kind, l.folded])")
    assert ["machine", "mixed", True] in lines
    one.page.goto(f"{one.page.url.partition('#')[0]}#fold=h0/machine~h1/machine")
    one.page.reload()
    one.settle()
    shown = one.run(
        "timeline.lines.filter(l => l.kind === 'counter').map(l => [l.lane.title, l.title, l.note])"
    )
    assert ["GPU 1", "clock", "MHz"] in shown
    assert ["mlx5_0/1", "received", "GB/s"] in shown
    # Its clock falls in the middle: what was below the line is paper there.
    line = _clock_line(one)
    y = line["y"] + line["height"] * 0.4
    early, late = (one.pixel(line["left"] + line["width"] * share, y) for share in (0.2, 0.8))
    assert early != late
    close_page(one)
