"""`report --html` in Chromium: tables sort, rows are filtered, pictures are drawn, nothing is fetched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclscope.cli import main
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.waiting import eventually
from tests.support.writer.scenario import write_scenario

HOSTILE = "tp<img src=x onerror=document.title='owned'>"
JOB = Scenario(
    ranks=4, steps=30, compute_ms=5,
    communicators=(Communicators("world"), Communicators(HOSTILE, 2)),
    calls=(
        Call("world", "AllReduce", 1 << 20),
        Call("world", "AllReduce", 1 << 12),
        Call(HOSTILE, "AllGather", 1 << 18),
    ),
    late=(Late(2, 8.0),),
)  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a job whose rank 2 is late."""
    folder = tmp_path_factory.mktemp("report")
    write_scenario(folder / "job", JOB, 1)
    assert main(["report", str(folder / "job"), "--html", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture
def page(chromium: Any, file: Path) -> Iterator[Any]:
    shown = chromium.new_page(viewport={"width": 1200, "height": 900})
    troubles: list[str] = []
    shown.on("console", lambda message: troubles.append(message.text))
    shown.on("pageerror", lambda error: troubles.append(str(error)))
    shown.on("request", lambda request: troubles.append(request.url))
    shown.goto(file.as_uri())
    yield shown
    shown.close()
    assert [trouble for trouble in troubles if trouble != file.as_uri()] == []


def column(page: Any, title: str, place: int) -> list[str]:
    """The texts of a column of the section with this title, as they are shown."""
    texts: list[str] = page.evaluate(
        "([title, place]) => [...document.querySelectorAll(`section[data-title='${title}'] tbody tr`)]"
        ".filter(row => !row.hidden).map(row => row.cells[place].textContent)",
        [title, place],
    )
    return texts


def test_findings_name_the_late_rank(page: Any) -> None:
    first = page.locator(".finding").first
    assert "straggler" in first.inner_text()
    assert "rank 2" in first.inner_text()


def test_a_heading_sorts_by_number_and_back(page: Any) -> None:
    title = "where the time goes"
    waiting = page.locator(f"section[data-title='{title}'] th", has_text="waiting").first
    waiting.click()
    shares = [int(text.split()[0].lstrip("<")) for text in column(page, title, 4)]
    assert shares == sorted(shares, reverse=True)
    waiting.press("Enter")
    assert column(page, title, 0)[0] == "2", "the late rank waits least"
    assert waiting.get_attribute("aria-sort") == "ascending"


def test_the_filter_keeps_rows_with_all_words(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("allgather")
    shown = page.locator("table.sortable tbody tr:visible").all_inner_texts()
    assert shown
    assert all("allgather" in text.lower() or "AllGather" in text for text in shown)
    assert page.locator("section[data-title='where the time goes']").is_hidden()
    assert " of " in page.locator("#filter-count").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("section[data-title='where the time goes']").is_visible()


@pytest.mark.parametrize("name", ["slices", "strip", "functions"])
def test_pictures_are_drawn_and_say_what_is_under_the_mouse(page: Any, name: str) -> None:
    place = page.locator(f"#{name}")
    place.scroll_into_view_if_needed()
    painted = page.evaluate(
        "name => { const canvas = document.querySelector(`#${name} canvas`); "
        "const pixels = canvas.getContext('2d').getImageData(70, 0, canvas.width - 70, 60).data; "
        "return pixels.some((value, place) => place % 4 === 3 && value > 0); }",
        name,
    )
    assert painted
    box = place.bounding_box()

    def tip() -> str:
        for step in range(40):
            page.mouse.move(box["x"] + 70 + step * (box["width"] - 80) / 40, box["y"] + 10)
            if page.locator("#tip").is_visible():
                return str(page.locator("#tip").inner_text())
        return ""

    assert "rank" in eventually(tip)


def test_names_of_a_job_stay_text(page: Any) -> None:
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    assert "onerror" in page.locator("body").inner_text()
