"""The list of export formats agrees with its writers and its page."""

import inspect
from pathlib import Path

import pytest

from ncclscope.export.formats import FORMATS, Export
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "verbs" / "export.md").read_text()


@pytest.mark.parametrize("export", FORMATS.values(), ids=list(FORMATS))
def test_a_writer_takes_the_options_that_its_format_lists(export: Export) -> None:
    parameters = inspect.signature(export.write).parameters
    assert list(parameters)[:3] == ["model", "selection", "path"]
    assert set(list(parameters)[3:]) == {
        *export.options,
        "progress",
        *(("engine_of",) if export.uses_workers else ()),
    }
    assert inspect.signature(export.write).return_annotation.__name__ == "ExportResult"


@pytest.mark.parametrize("export", FORMATS.values(), ids=list(FORMATS))
def test_a_format_is_on_the_page_of_export(export: Export) -> None:
    assert f"`{export.name}`" in PAGE


def test_no_two_formats_have_the_same_ending() -> None:
    endings = [ending for export in FORMATS.values() for ending in export.endings]
    assert len(endings) == len(set(endings))
    assert not any("." in Path(ending).name for ending in endings)
