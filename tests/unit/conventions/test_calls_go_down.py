"""A summary and a diagnosis are made from a model alone: calls go down the layers, no file of a
capture is opened again.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary_from_operations import summarize
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.regular_files import read_bytes
from ncclscope.snapshot.process import unfinished_snapshots
from tests.support.call_flow import CallFlow, call_flow
from tests.support.paths import ROOT
from tests.support.writer import Straggler, SyntheticSpec, synthetic


def levels() -> dict[str, int]:
    """Packages by their layer in pyproject.toml, the lowest first."""
    contract = (ROOT / "pyproject.toml").read_text().partition('name = "imports point down"')[2]
    layers = re.findall(r'^  "(.*)",$', contract.partition("\n]\n")[0], re.M)
    assert len(layers) > 10
    return {
        package.strip().removeprefix("ncclscope."): -place
        for place, layer in enumerate(layers)
        for package in layer.split("|")
    }


def climbs(flow: CallFlow) -> dict[tuple[str, str], set[str]]:
    """Calls from a lower package to a higher one, but for the length of what was passed down."""
    level = levels()
    return {
        way: names - {"__len__"}
        for way, names in flow.calls.items()
        if level[way[1]] > level[way[0]] and names != {"__len__"}
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    capture = tmp_path_factory.mktemp("flow") / "c"
    spec = SyntheticSpec(processes=4, operations=60, straggler=Straggler(3, 2_000_000))
    synthetic(capture, spec)
    return open_model(capture)


def test_a_climb_is_seen() -> None:
    assert climbs(CallFlow({("model", "cli"): {"main"}, ("cli", "model"): {"open_model"}})) == {
        ("model", "cli"): {"main"}
    }


@pytest.mark.parametrize("name", ["summary", "diagnosis"])
def test_a_model_is_all_that_is_needed(name: str, model: Model) -> None:
    snapshots = unfinished_snapshots(model)
    functions: dict[str, Callable[[], object]] = {
        "summary": lambda: summarize(model, Selection(), ("function", "size")),
        "diagnosis": lambda: diagnose(model, snapshots),
    }
    functions[name]()  # imports what it needs
    flow = call_flow(functions[name])
    assert len(flow.modules) > 20
    assert not climbs(flow)
    assert set(flow.opened) <= {"analysis/query.py"}, "which reads the package's SQL texts"


def test_a_file_that_is_opened_is_seen(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    flow = call_flow(lambda: read_bytes(tmp_path / "file", 99))
    assert set(flow.opened) == {"regular_files.py"}
