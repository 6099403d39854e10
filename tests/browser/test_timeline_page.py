"""The page shows what the capture holds, where it must be, and asks nobody but its own server."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ncclscope.web.session import Timeline
from ncclscope.web.single_file import write_html
from tests.support.player import TRANSCRIPTS, recording, start_player, transcript_files
from tests.support.timeline_page import PATIENCE_S, Page, close_page, open_page
from tests.support.writer import SyntheticSpec, from_transcript, synthetic

JOBS = {
    "ddp": "2.28.9-v5-2ranks-ddp-densenet121",
    "four": "2.28.9-v5-4ranks",
    "straggler": "2.28.9-v5-4ranks-straggler",
    "hang": "2.28.9-v5-3ranks-hang",
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("captures")
    for name, folder in JOBS.items():
        from_transcript(TRANSCRIPTS / folder, place / name)
    return {name: place / name for name in JOBS}


@pytest.fixture
def page(
    chromium: Any, captures: dict[str, Path], request: pytest.FixtureRequest
) -> Iterator[Page]:
    one = open_page(chromium, captures[request.param])
    yield one.open()
    close_page(one)


@pytest.mark.parametrize("page", JOBS, indirect=True)
def test_it_opens_and_draws_every_rank(page: Page) -> None:
    path, *hosts = page.run("timeline.scene.lanes")
    assert path["title"] == "critical path"
    ranks = {lane["ids"]["rank"] for host in hosts for lane in host["children"]}
    assert len(ranks) == len(page.timeline.scene.processes)
    for row in page.rows("operation")[:1]:
        bars = page.timeline.scene.rows[row].bars
        longest = int((bars.end_ns - bars.start_ns).argmax())
        at = page.place(row, longest)
        inside = page.pixel(
            at["x"] + max(at["width"] - 3, at["width"] / 2), at["y"] + at["height"] - 2
        )
        outside = page.pixel(1380, 850)
        assert max(inside) - min(inside) > 40, "a coloured bar"
        assert inside != outside
    assert page.run("document.getElementById('complete').textContent").startswith(
        f"{len(ranks)} of {len(ranks)} processes"
    )


@pytest.mark.parametrize("page", ["straggler"], indirect=True)
def test_waiting_is_shaded_apart_from_moving_data(page: Page) -> None:
    row = page.rows("operation")[0]
    bars = page.timeline.scene.rows[row].bars
    item = int((bars.wait_ns * 1.0 / (bars.end_ns - bars.start_ns)).argmax())
    start = (
        page.timeline.scene.rows[row].to_scene(int(bars.start_ns[item]))
        - page.timeline.scene.first_ns
    )
    page.run(f"timeline.fit({start}, {start + int(bars.end_ns[item] - bars.start_ns[item])})")
    page.settle()
    at = page.place(row, item)
    share = bars.wait_ns[item] / (bars.end_ns[item] - bars.start_ns[item])
    waiting = page.pixel(at["x"] + at["width"] * share * 0.8, at["y"] + 2)
    moving = page.pixel(at["x"] + at["width"] * (1 + share) / 2, at["y"] + 2)
    assert sum(waiting) > sum(moving) + 60, "paler"


@pytest.mark.parametrize("page", ["straggler"], indirect=True)
def test_hover_shows_every_field(page: Page) -> None:
    text = page.hover(page.rows("operation")[0], 0)
    for word in (
        "AllReduce",
        "1M (1,048,576 bytes)",
        "float32",
        "RING",
        "SIMPLE",
        "wait",
        "gpu",
        "±",
        "world",
        "sequence",
    ):
        assert word in text
    assert "undefined" not in text
    assert "NaN" not in text


@pytest.mark.parametrize("page", ["straggler"], indirect=True)
def test_unfolding_shows_callbacks_states_and_parents(page: Page) -> None:
    head = page.run("timeline.lines.find(line => line.lane.level === 'thread')")
    assert head["folded"]
    box = page.run("document.getElementById('lanes').getBoundingClientRect().toJSON()")
    page.page.mouse.click(box["x"] + 60, box["y"] + 24 + head["y"] + 10)
    page.settle()
    kinds = page.run("timeline.lines.map(line => line.kind)")
    assert {"GroupApi", "CollApi", "KernelLaunch", "Group", "Coll"} <= set(kinds)
    page.key("]")
    page.key("]")
    step = page.rows("ProxyStep")[0]
    found = page.run(
        f"timeline.go({{row: {step}, item: 0, start_ns: 0, end_ns: 0}}).then(() => timeline.current.pinned)"
    )
    assert [state["name"] for state in found["states"]] == [
        "ProxyStepRecvWait",
        "ProxyStepRecvFlushWait",
        "ProxyStepRecvGPUWait",
    ]
    page.key("f")
    marks = page.wait("timeline.current.marks")
    states = [state for state in marks["states"] if state["row"] == step]
    assert len(states) >= 3
    scene = page.timeline.scene
    joined = {
        (scene.rows[one["child"]["row"]].kind, scene.rows[one["parent"]["row"]].kind)
        for one in marks["parents"]
    }
    assert ("ProxyStep", "ProxyOp") in joined
    text = page.run("document.getElementById('panel').innerText")
    assert "ProxyStepRecvFlushWait" in text


@pytest.mark.parametrize("page", ["straggler"], indirect=True)
def test_a_click_pins_and_joins_the_instance_across_ranks(page: Page) -> None:
    row = page.rows("operation")[0]
    page.click(row, 0)
    pinned = page.run("timeline.current.pinned")
    assert len(pinned["instance"]) == 4
    places = [page.place(one["row"], one["item"]) for one in pinned["instance"]]
    above, below = sorted(places, key=lambda place: place["y"])[:2]
    x = (above["x"] + below["x"]) / 2
    y = (above["y"] + below["y"] + above["height"]) / 2
    reds = [page.pixel(x + dx, y) for dx in range(-3, 4)]
    assert any(red[0] > red[2] + 60 for red in reds), "a red line between the ranks"
    text = page.run("document.getElementById('panel').innerText")
    assert "the same operation on 4 ranks" in text
    names = page.run("[...document.querySelectorAll('.arrivals button')].map(b => b.dataset.name)")
    assert sorted(names) == ["rank 0", "rank 1", "rank 2", "rank 3"]
    page.key("ArrowRight")
    page.wait(f"timeline.current.pinned?.item === {pinned['item'] + 1}")
    page.key("Escape")
    assert page.run(
        "timeline.current.pinned === undefined && document.getElementById('panel').hidden"
    )


@pytest.mark.parametrize("page", ["ddp"], indirect=True)
def test_lines_between_ranks_are_no_hatch(page: Page) -> None:
    """105 instances on a thousand pixels: those that are drawn can be told apart."""
    page.open('#comms=["world"]')
    marks = page.wait("timeline.current.marks")
    assert len({one["instance"] for one in marks["instances"]}) == 105
    page.settle()
    line = """(() => {
        const c = document.getElementById('lanes');
        const between = timeline.lines.find(l => l.kind === 'bandwidth');
        const y = Math.round((24 + between.y + 8) * devicePixelRatio);
        const row = Object.assign(document.createElement('canvas'), {width: c.width, height: 1});
        const one = row.getContext('2d', {willReadFrequently: true});
        one.drawImage(c, 0, -y);
        const d = one.getImageData(252, 0, c.width - 252, 1).data;
        const at = [];
        for (let x = 0; x < d.length / 4; x++) if (d[4 * x] > d[4 * x + 2] + 10) at.push(x);
        return at;
    })()"""
    reds = page.run(line)
    lines = [x for n, x in enumerate(reds) if n == 0 or x > reds[n - 1] + 2]
    assert 10 < len(lines) < 80
    assert min(b - a for a, b in pairwise(lines)) >= 10
    page.key("l")
    assert page.run(line) == []


@pytest.mark.parametrize("page", ["four"], indirect=True)
def test_the_address_keeps_the_view(page: Page) -> None:
    page.click(page.rows("operation")[0], 3)
    page.key("f")
    page.wait("location.hash.includes('pin=')")
    page.page.wait_for_timeout(300)
    address = page.run("location.hash")
    before = page.run(
        "[timeline.view, timeline.current.pinned.title, timeline.current.pinned.start_ns]"
    )
    page.open(address)
    page.wait("!!timeline.current.pinned")
    after = page.run(
        "[timeline.view, timeline.current.pinned.title, timeline.current.pinned.start_ns]"
    )
    assert after[1:] == before[1:]
    assert after[0]["start"] == pytest.approx(before[0]["start"], abs=2 * before[0]["nsPerPixel"])


@pytest.mark.parametrize("page", ["four"], indirect=True)
def test_keys_move_and_zoom(page: Page) -> None:
    whole = page.run("timeline.view")
    page.page.mouse.move(800, 300)
    for key, change in (
        ("w", lambda old, new: new["nsPerPixel"] < old["nsPerPixel"]),
        ("d", lambda old, new: new["start"] > old["start"]),
        ("a", lambda old, new: new["start"] < old["start"]),
        ("s", lambda old, new: new["nsPerPixel"] > old["nsPerPixel"]),
    ):
        old = page.run("timeline.view")
        page.key(key)  # a tap, shorter than a frame
        tapped = page.run("timeline.view")
        assert change(old, tapped), key
        page.page.keyboard.down(key)
        page.page.wait_for_timeout(150)
        page.page.keyboard.up(key)
        page.settle()
        assert change(tapped, page.run("timeline.view")), key
    page.key("0")
    assert page.run("timeline.view") == whole
    page.key("?")
    assert page.run("document.getElementById('help').open")
    page.page.keyboard.press("Escape")
    page.wait("!document.getElementById('help').open")
    page.key("t")
    assert page.run("document.documentElement.classList.contains('dark')")
    assert sum(page.pixel(1380, 800)) < 200
    page.key("t")
    page.key("m")
    assert page.run("!document.getElementById('menu').hidden")


@pytest.mark.parametrize("page", ["hang"], indirect=True)
def test_what_is_in_view_stays_when_a_panel_takes_room(page: Page) -> None:
    def window() -> tuple[float, float]:
        view = page.run("timeline.view")
        width = page.run("document.getElementById('lanes').clientWidth") - 252
        return view["start"], view["start"] + width * view["nsPerPixel"]

    for width in (1400, 800):
        page.page.set_viewport_size({"width": width, "height": 700})
        page.key("0")
        before = window()
        page.key("j")
        page.wait("!document.getElementById('panel').hidden")
        page.settle()
        assert window() == pytest.approx(before)
        lanes = page.run("document.getElementById('lanes').clientWidth")
        assert lanes > 780 if width == 800 else lanes < 1100  # below the lanes, or beside them
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        page.key("Escape")
        assert window() == pytest.approx(before)


@pytest.mark.parametrize("page", ["hang"], indirect=True)
def test_a_lane_tells_its_whole_name(page: Page) -> None:
    line = page.run("timeline.lines.find(line => line.title === 'rank 1')")
    page.page.mouse.move(100, 38 + 34 + 24 + line["y"] + 10)
    title = page.wait("document.getElementById('lanes').title")
    assert all(word in title for word in ("rank 1", "not heard of any more", "world", "pid"))
    page.page.mouse.move(600, 300)
    assert page.run("document.getElementById('lanes').title") == ""


@pytest.mark.parametrize("page", ["ddp", "hang"], indirect=True)
def test_a_view_looks_the_same_however_one_came_there(page: Page) -> None:
    """Bars are kept as pictures, which are stretched while the view is zoomed."""

    def seen() -> str:
        page.page.wait_for_timeout(300)  # lines come when the view rests
        page.settle()
        return str(page.run("document.getElementById('lanes').toDataURL()"))

    page.wait("!!timeline.current.marks")
    whole = seen()
    for key in ("w", "d", "s", "a"):
        page.page.keyboard.down(key)
        page.page.wait_for_timeout(120)
        page.page.keyboard.up(key)
    assert seen() != whole
    page.key("0")
    assert seen() == whole


@pytest.mark.parametrize("page", ["four"], indirect=True)
def test_another_address_on_the_open_page_changes_everything_it_says(page: Page) -> None:
    row = page.rows("operation")[0]
    page.click(row, 0)
    assert set(page.run(f"timeline.codes({row})")) - {4}
    page.run("location.hash = '#fn=4'")
    page.wait("document.querySelector('[data-function=Reduce]').classList.contains('on')")
    page.settle()
    assert set(page.run(f"timeline.codes({row})")) <= {4}
    assert page.run(
        "timeline.current.pinned === undefined && document.getElementById('panel').hidden"
    )
    page.run("location.hash = '#'")
    page.wait("!document.querySelector('[data-function=Reduce]').classList.contains('on')")
    page.settle()
    assert set(page.run(f"timeline.codes({row})")) - {4}


@pytest.mark.parametrize("page", ["four"], indirect=True)
def test_filters_hide_what_does_not_fit(page: Page) -> None:
    page.key("m")
    row = page.rows("operation")[0]
    titles = {page.hover(row, 0).split("\n")[0]}
    assert titles == {"AllReduce"}
    page.page.mouse.move(700, 5)
    page.page.click("[data-function=Reduce]")
    page.settle()
    assert "fn=4" in page.wait("location.hash.includes('fn=') && location.hash")
    shown = [page.run(f"timeline.codes({row})") for row in page.rows("operation")]
    assert {code for codes in shown for code in codes} == {4}
    page.page.click("[data-kind=bandwidth]")
    page.settle()
    assert "bandwidth" not in page.run("timeline.lines.map(line => line.kind)")
    page.page.fill("[aria-label='0-3,8']", "1-2")
    page.page.keyboard.press("Enter")
    page.settle()
    heads = page.run("timeline.lines.filter(line => line.head).map(line => line.title)")
    assert "rank 1" in heads
    assert "rank 0" not in heads


@pytest.mark.parametrize("page", ["four"], indirect=True)
def test_search_and_highlights_lead_there(page: Page) -> None:
    page.page.keyboard.press("/")
    page.page.keyboard.type("reducescatter rank:2")
    page.page.keyboard.press("Enter")
    page.wait("document.querySelectorAll('#panel .entry').length === 8")
    assert page.run("timeline.current.hits.length") == 8
    page.page.click("#panel .entry >> nth=3")
    page.wait("timeline.current.pinned?.title === 'ReduceScatter'")
    page.page.click("#lanes", position={"x": 700, "y": 12})
    page.key("j")
    page.wait("document.querySelectorAll('#panel .entry').length > 3")
    page.page.click("#panel .entry >> nth=0")
    page.wait("!!timeline.current.pinned")
    page.settle()
    row, item = page.run("[timeline.current.pinned.row, timeline.current.pinned.item]")
    at = page.place(row, item)
    assert 250 < at["x"] < 1400
    for member in page.run("timeline.current.pinned.instance.map(m => [m.row, m.item])"):
        assert 250 < page.place(*member)["x"] < 1400  # all that shows who was late
    page.key("Escape")
    assert page.run("timeline.current.hits.length") == 0
    page.key("/")
    page.page.fill("#search", "op:7")
    page.page.keyboard.press("Enter")
    page.wait("timeline.current.pinned && timeline.current.hits.length === 1")
    page.page.fill("#search", "@1ms")
    page.page.keyboard.press("Enter")
    page.wait("timeline.current.moment === 1e6")
    first_ns, ns_per_pixel = page.run("[timeline.view.start, timeline.view.nsPerPixel]")
    assert 0 < 1e6 - first_ns < 1400 * ns_per_pixel


@pytest.mark.parametrize("page", ["straggler"], indirect=True)
def test_a_span_has_statistics(page: Page) -> None:
    page.page.mouse.move(400, 90)
    page.page.mouse.down()
    page.page.mouse.move(900, 92, steps=4)
    page.page.mouse.up()
    page.wait("document.querySelector('#panel .statistics') !== null")
    text = page.run("document.getElementById('panel').innerText")
    assert "AllReduce" in text
    assert "median" in text
    assert page.run("timeline.current.selection[1] > timeline.current.selection[0]")


@pytest.mark.parametrize("page", ["hang"], indirect=True)
def test_what_hangs_is_seen_at_once(page: Page) -> None:
    page.key("j")
    page.wait("document.querySelectorAll('#panel .entry').length > 1")
    titles = page.run("[...document.querySelectorAll('#panel h3')].map(h => h.textContent)")
    assert "not ended" in titles
    page.page.click("#panel .entry:not(.finding) >> nth=0")
    page.wait("!!timeline.current.pinned")
    assert "not ended when the capture ended" in page.run(
        "document.getElementById('panel').innerText"
    )


def test_hostile_names_stay_text(chromium: Any, tmp_path: Path) -> None:
    name = "<img src=x onerror=document.title='broken'><script>alert(1)</script>\"'&" + "y" * 9_000
    synthetic(
        tmp_path / "hostile",
        SyntheticSpec(
            processes=2, operations=30, communicator_names=(name,), communicators=((0, 1),)
        ),
    )
    one = open_page(chromium, tmp_path / "hostile").open()
    one.key("m")
    one.click(one.rows("operation")[0], 4)
    one.page.keyboard.press("/")
    one.page.keyboard.type("img")
    one.page.keyboard.press("Enter")
    one.wait("document.querySelectorAll('#panel .entry').length > 0")
    assert one.run("document.querySelectorAll('img, #panel script, #menu script').length") == 0
    assert "broken" not in one.run("document.title")
    assert one.run("document.documentElement.scrollWidth <= innerWidth")
    close_page(one)


def test_a_running_job_is_followed(chromium: Any, tmp_path: Path) -> None:
    capture = tmp_path / "running"
    plain = tmp_path / "rank0.jsonl"
    import gzip

    plain.write_bytes(gzip.decompress(transcript_files("2.28.9-v5-2ranks")[0].read_bytes()))
    first = start_player("play", plain, env=recording(capture, "trace", RANK="0"))
    first.communicate(timeout=60)
    one = open_page(chromium, capture).open()
    one.key("g")
    generation = one.run("timeline.scene.generation")
    rows = one.run("timeline.lines.length")
    second = start_player("play", plain, env=recording(capture, "trace", RANK="1"))
    second.communicate(timeout=60)
    one.wait(f"timeline.scene.generation > {generation} && timeline.lines.length > {rows}")
    one.settle()
    close_page(one)


def test_one_file_needs_no_server(chromium: Any, captures: dict[str, Path], tmp_path: Path) -> None:
    timeline = Timeline(captures["straggler"])
    timeline.make()
    write_html(timeline, tmp_path / "page.html")
    context = chromium.new_context(viewport={"width": 1400, "height": 860})
    one = Page(context.new_page(), timeline, None)
    one.page.on("console", lambda m: one.troubles.append(m.text))
    one.page.on("pageerror", lambda error: one.troubles.append(str(error)))
    asked: list[str] = []
    one.page.on("request", lambda request: asked.append(request.url))
    one.page.goto(f"file://{tmp_path / 'page.html'}")
    one.settle()
    assert "AllReduce" in one.hover(one.rows("operation")[0], 0)
    one.click(one.rows("operation")[0], 0)
    assert one.run("timeline.current.pinned.instance.length") == 4
    one.key("f")
    one.wait("timeline.current.marks?.instances.length >= 4")
    one.key("j")
    one.wait("document.querySelectorAll('#panel .finding').length > 0")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert one.troubles == []
    context.close()
    timeline.stop()


def test_findings_are_a_click_away(chromium: Any, captures: dict[str, Path]) -> None:
    one = open_page(chromium, captures["straggler"]).open()
    one.wait(
        "fetch('api/highlights').then(answer => answer.json()).then(all => all.findings.length)"
    )
    one.key("j")
    one.wait("document.querySelectorAll('#panel .finding').length > 0")
    assert "rank 3" in one.run("document.querySelector('#panel .finding').innerText")
    one.page.click("#panel .finding >> nth=0")
    one.wait("timeline.current.pinned?.kind === 'operation'")
    close_page(one)


def test_perfetto_gets_the_window(chromium: Any, captures: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "ncclscope", "timeline", str(captures["straggler"])]
    command += ["--perfetto", "--rank", "0", "--no-open"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        page = chromium.new_page()
        asked: list[str] = []
        blocked: dict[str, str | None] = {}
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: blocked.update({request.url: request.failure}))
        page.goto(address)
        end = time.monotonic() + 2 * PATIENCE_S
        while "capture.pftrace" not in page.title():
            assert time.monotonic() < end, page.title()
            page.wait_for_timeout(200)
        page.wait_for_timeout(500)
        here = ("http://127.0.0.1:", "data:", "blob:")
        away = {url: blocked.get(url) for url in asked if not url.startswith(here)}
        assert all(why == "csp" for why in away.values()), away  # our policy stops the UI's own
        page.close()
    finally:
        served.send_signal(signal.SIGINT)
        served.communicate(timeout=60)
    assert served.returncode == 0
