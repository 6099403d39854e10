"""What is made from C's lists is current, and says what NCCL's releases say."""

import copy
from pathlib import Path

import pytest

from ncclscope.capture import layout
from ncclscope.nccl import events
from tools import generate


@pytest.fixture(scope="module")
def lists() -> generate.Lists:
    return generate.lists()


def test_committed_files_are_current(lists: generate.Lists) -> None:
    for path, text in generate.outputs(lists).items():
        where = path.relative_to(generate.ROOT)
        assert path.read_text() == text, f"{where} is not current: run `make generate`"


def test_a_new_field_needs_a_meaning_on_the_page(lists: generate.Lists) -> None:
    changed = copy.deepcopy(lists)
    changed["slots"]["CeSync"]["fields"].insert(4, ["colour", "u16", 38, 2])
    page = generate.PAGE.read_text()
    with pytest.raises(SystemExit, match=r"does not say what CeSync\.colour means"):
        generate.page(changed, page)
    row = "| 32 | ranks | i32 | `nRanks` |"
    described = page.replace(row, f"{row}\n| | colour | | its colour |")
    assert "| 38 | colour | u16 | its colour |" in generate.page(changed, described)


def test_a_new_kind_needs_a_section_on_the_page(lists: generate.Lists) -> None:
    changed = copy.deepcopy(lists)
    changed["slots"]["Novel"] = {"kind": 90, "fields": []}
    with pytest.raises(SystemExit, match=r"different slot kinds.*Novel"):
        generate.page(changed, generate.PAGE.read_text())


def test_numbers_in_sentences_follow_the_lists(lists: generate.Lists) -> None:
    changed = copy.deepcopy(lists)
    changed["constants"]["FORMAT_MINOR"] = 9
    page = generate.page(changed, generate.PAGE.read_text())
    assert page.startswith(f"# The capture format, version {layout.MAJOR}.9\n")


def test_events_of_interfaces_and_modes_are_those_of_nccl() -> None:
    """By heart, from NCCL's headers and docs/environment.md."""
    masks = {1: 0x3F, 2: 0x3F, 3: 0xFF, 4: 0xFF, 5: 0xFFF, 6: 0x7FFF, 7: 0xFFFF}
    assert {version: events.events_of(version) for version in events.INTERFACES} == masks
    assert events.MODE_EVENTS == {"profile": 0x7746, "trace": 0xFF4F, "full": 0xFFFF}
    assert (events.FIRST_WITH_KERNELS, events.FIRST_WITH_STAMPS) == (3, 4)
    assert (events.FIRST_WITH_CALLS, events.FIRST_WITH_TAGS) == (5, 7)
    assert events.STATE["KernelChStop"] == 22
    assert len(events.STATE_NAMES) == 32


def test_generated_modules_say_so() -> None:
    for path in (Path("capture/_layout.py"), Path("nccl/_events.py"), Path("arrays/_abi.py")):
        assert "do not edit" in (generate.SOURCE / path).read_text().partition('"""\n')[0]
