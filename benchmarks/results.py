"""Results as sections of the pages in docs/measurements, each with its machine and day."""

import os
import platform
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "measurements"


def machine() -> str:
    """This machine in one line."""
    # /proc/cpuinfo of aarch64 has numbers instead of a name.
    cpu = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    cpu = cpu.partition("Model name:")[2].partition("\n")[0].strip()
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{platform.machine()}, {cpu}, {os.cpu_count()} CPUs, {gigabytes:.0f} GB, "
        f"Linux {platform.release()}"
    )


def table(header: list[str], rows: list[list[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page_of(name: str) -> Path:
    """The page that has a place for a result; docs/measurements.md links to it."""
    for page in sorted(PAGES.glob("*.md")):
        if f"<!-- begin {name} -->" in page.read_text():
            return page
    raise SystemExit(f"no page in {PAGES} has a place for {name}: <!-- begin {name} -->")


def rows_of(name: str) -> list[list[object]]:
    """The rows of the table that stands in a section now."""
    text = page_of(name).read_text()
    section = text.partition(f"<!-- begin {name} -->")[2].partition("<!-- end")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def publish(name: str, body: str, where: str = "") -> None:
    """Prints a result and puts it into its page, in the place of the one measured before. `where`:
    the machine, if it was not this one.
    """
    day = time.strftime("%Y-%m-%d")
    section = (
        f"<!-- begin {name} -->\n{body}\n\n*Measured {day} on {where or machine()}.*\n"
        f"<!-- end {name} -->"
    )
    print(f"\n{body}\n")
    page = page_of(name)
    pattern = re.compile(rf"<!-- begin {name} -->.*?<!-- end {name} -->", re.S)
    page.write_text(pattern.sub(lambda _: section, page.read_text()))
