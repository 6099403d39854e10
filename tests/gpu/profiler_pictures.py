"""Draws the figures of docs/comparison.md: `python -m tests.gpu.profiler_pictures DIR`.

DIR has the JSON files that tests/gpu/profilers.py wrote. The figures are those of `ncclscope bench
--from FILE --plot PAGE`, photographed by Chromium (the dependency group `test`).
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.results import ROOT
from ncclscope.bench.profilers import comparison_files, comparison_page
from ncclscope.bench.training import files as training_files
from ncclscope.bench.training import page as training_page

PICTURES = ROOT / "docs" / "pictures"
CASES = 2  # of a figure with one drawing for each function and size
FIGURES = {  # picture: piece, figure
    "profilers-coverage": ("calls-200", 1),
    "profilers-times": ("near", 2),
    "profilers-cost": ("near", 3),
    "profilers-densenet121": ("densenet121", 4),
    "profilers-gpt": ("gpt", 4),
}

# Puts a figure's heading and drawings into one element.
_WRAP = """([number, cases]) => {
    const heading = [...document.querySelectorAll("h2")].find(
        (own) => own.textContent.startsWith(`Figure ${number}:`));
    const box = document.createElement("div");
    box.id = "figure";
    box.style.padding = "8px";
    heading.before(box);
    let drawn = 0;
    for (let own = heading; own && (own === heading || own.tagName !== "H2");) {
        const next = own.nextElementSibling;
        if (own.tagName === "H3" && ++drawn > cases) break;
        box.append(own);
        own = next;
    }
}"""


def page_of(path: Path) -> str:
    """The piece's page."""
    if path.stem in ("densenet121", "gpt"):
        return training_page.as_html(training_files.read_run(path))
    return comparison_page.as_html(comparison_files.read_run(path))


def photograph(open_page: Callable[[str], Any], html: str, figure: int, picture: Path) -> None:
    """One figure of a page as a PNG file."""
    page = open_page(html)
    page.evaluate(_WRAP, [figure, CASES])
    page.locator("#figure").screenshot(path=str(picture))
    page.close()


def main(folder: Path) -> None:
    """Draws all figures whose pieces are there."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )

        def open_page(html: str) -> Any:
            path = Path(place) / "page.html"
            path.write_text(html)
            page = browser.new_page(viewport={"width": 900, "height": 800})
            page.goto(path.as_uri())
            return page

        for name, (piece, figure) in FIGURES.items():
            path = folder / f"{piece}.json"
            if path.is_file():
                photograph(open_page, page_of(path), figure, PICTURES / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
