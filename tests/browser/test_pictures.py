"""Pictures in the docs are made by scripts, and show what the timeline shows today."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import needs
from tests.support.paths import ROOT

PICTURES = ROOT / "docs" / "pictures"
# Of the timeline; tools/timeline_pictures.py has the same names.
NAMES = (
    "straggler", "device-per-thread", "proxy-steps", "several-ranks", "aggregated", "across-ranks",
    "hang",
)  # fmt: skip


@needs("matplotlib", "playwright")
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_of_the_timeline_is_current(name: str, chromium: Any, tmp_path: Path) -> None:
    from tools import timeline_pictures

    timeline_pictures.take_by_name(chromium, name, tmp_path, tmp_path / f"{name}.png")
    share = timeline_pictures.differing_share(tmp_path / f"{name}.png", PICTURES / f"{name}.png")
    assert share <= timeline_pictures.MOST_DIFFERING, (
        f"run `python tools/timeline_pictures.py {name}`"
    )


def test_every_picture_is_made_by_a_script() -> None:
    """Those of profilers come from measurements on a GPU, which a machine without one cannot do."""
    scripts = [ROOT / "tools/plot_pictures.py", ROOT / "tests/gpu/profiler_pictures.py"]
    named = {*NAMES}
    for script in scripts:
        named |= set(re.findall(r'"((?:profilers|plot)-[\w-]+)(?:\.png)?"', script.read_text()))
    assert {path.stem for path in PICTURES.iterdir()} == named
    timeline = (ROOT / "tools/timeline_pictures.py").read_text()
    assert set(re.findall(r'^    "([\w-]+)": \("2\.', timeline, re.M)) == set(NAMES)
