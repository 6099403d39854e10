"""Sums of shares of the operations merge into those of one machine, value by value."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.analysis.kept_sums import is_kept, keep_sums, kept_sums
from ncclscope.analysis.report_stage import Work, report_sums, shares_of, sums_here
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.analysis.sum_columns import NOTHING, SumTable
from ncclscope.analysis.sum_tables import merge_sums
from ncclscope.analysis.summary import Summary
from ncclscope.analysis.summary_from_operations import summarize
from ncclscope.analysis.waiting.engine_tasks import SavedModel
from ncclscope.model.build import open_model
from ncclscope.model.engine import ProcessOperations
from ncclscope.model.model import Model
from tests.support.player import TRANSCRIPTS
from tests.support.stage_engines import RepeatingEngine
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, from_transcript, synthetic

BY = (
    ("communicator", "function", "size", "datatype"),
    ("rank", "host"),
    ("dimension", "module", "phase"),
    ("step", "function", "algorithm", "protocol", "variant", "tag", "thread"),
)


class OneProcessEach(RepeatingEngine):
    """An engine whose tasks have one process each: ranks of two attempts are of two of them."""

    def bundles(self, processes: Sequence[ProcessOperations]) -> list[list[ProcessOperations]]:
        return [[process] for process in processes]


def attempts(capture: Path) -> None:
    """Two attempts, all sorts of calls, a process that is missing, and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=60, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2, missing=frozenset({5}), killed=frozenset({2}),
    )  # fmt: skip
    synthetic(capture, spec)


def model_of(name: str, folder: Path) -> Model:
    if name == "attempts":
        attempts(folder / "capture")
    else:
        from_transcript(TRANSCRIPTS / name, folder / "capture")
    return open_model(folder / "capture")


def on_engine(engine: RepeatingEngine, model: Model) -> Work:
    return Work(engine, SavedModel(model.path, model.seal), 1)


def answer(model: Model, selection: Selection, by: tuple[str, ...], work: Work | None) -> Any:
    """A summary's numbers: texts of doubles differ where their last bits do."""
    sums_of = sums_here if work is None else work.sums
    summary = summarize(model, selection, by, lambda *_: (None, ()), sums_of)
    return numbers(summary)


def numbers(summary: Summary) -> dict[str, Any]:
    """Everything in a summary but the model that it is of."""
    own = (field.name for field in fields(summary) if field.name != "model")
    return {name: getattr(summary, name) for name in own}


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("attempts", OneProcessEach),
        ("2.28.9-v5-2ranks-ddp-densenet121", OneProcessEach),
        ("2.31.2-v7-2ranks", RepeatingEngine),
    ],
)
def test_shares_sum_up_to_the_whole(
    name: str, engine: type[RepeatingEngine], tmp_path: Path
) -> None:
    model = model_of(name, tmp_path)
    middle = int(np.median(model.tables["operations"]["call_ns"]))
    selections = (
        Selection(),
        Selection(since_ns=middle),
        Selection(ranks=(1,), until_ns=middle),
        Selection(communicators=(0,), functions=("AllReduce",)),
    )
    work = on_engine(engine(tmp_path), model)
    for by, selection in zip(BY, selections, strict=True):
        expected = answer(model, selection, by, None)
        assert answer(model, selection, by, work) == expected
        assert expected["groups"]


def test_no_task_has_a_part_of_a_rank() -> None:
    """Processes 0 and 3 have rank 7, 3 and 4 rank 8; processes without ranks stay."""
    bundles = [
        [ProcessOperations(number, 0, 10 * number, 10, 0) for number in own]
        for own in ((0, 1), (2, 3), (4, 5))
    ]
    ranks = [frozenset(own) for own in ({7}, {1}, {2}, {7, 8}, {8}, set())]
    shares = shares_of(bundles, ranks, 31)
    assert [share.operations for share in shares] == [
        ((0, 20), (30, 50)),
        ((20, 30),),
        ((50, 60),),
    ]
    assert [share.instances for share in shares] == [(0, 10), (10, 20), (20, 31)]


def test_operations_stay_where_they_are(tmp_path: Path) -> None:
    """What comes back has a row for each group, whatever the number of operations is."""
    sizes = []
    for operations in (60, 240):
        capture = tmp_path / str(operations)
        synthetic(capture, SyntheticSpec(processes=4, operations=operations))
        model = open_model(capture)
        sums = report_sums(
            on_engine(OneProcessEach(tmp_path), model), model, Selection(), ("communicator",)
        )
        sizes.append(
            sum(len(v) for name in ("sums", "rank_sums", "busy_communicators")
                for v in sums.tables[name].columns.values())
        )  # fmt: skip
    assert sizes[0] == sizes[1] > 0


class Unread(dict[str, Any]):
    """Columns that nobody may read, but for the numbers of processes, of which a few are looked up,
    and the first column, which tells how many rows there are.
    """

    def __getitem__(self, name: str) -> Any:
        assert name in ("process", "event"), f"{name} was read"
        return super().__getitem__(name)


def test_the_command_reads_no_operations(tmp_path: Path) -> None:
    model = model_of("attempts", tmp_path)
    expected = answer(model, Selection(), BY[0], None)
    tables = {**model.tables, "operations": Unread(model.tables["operations"])}
    work = on_engine(RepeatingEngine(tmp_path), model)
    assert answer(replace(model, tables=tables), Selection(), BY[0], work) == expected
    with pytest.raises(AssertionError, match="was read"):
        answer(replace(model, tables=tables), Selection(), BY[0], None)


def test_kept_sums_are_those_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("attempts", tmp_path)
    assert not is_kept(model, Selection(), DEFAULT_BY)
    monkeypatch.setattr("ncclscope.analysis.report_stage.MOST_HERE", 0)
    assert is_kept(model, Selection(), DEFAULT_BY)
    assert not is_kept(model, Selection(ranks=(1,)), DEFAULT_BY)
    assert not is_kept(model, Selection(), ("rank",))
    made = sums_here(model, Selection(), DEFAULT_BY)
    assert kept_sums(model) is None
    keep_sums(model, made)
    kept = kept_sums(model)
    assert kept is not None
    assert kept.span == made.span
    expected = answer(model, Selection(), DEFAULT_BY, None)
    summary = summarize(model, Selection(), DEFAULT_BY, lambda *_: (None, ()), lambda *_: kept)
    assert numbers(summary) == expected


@pytest.mark.parametrize("column", ["communicator", "function", "node"])
def test_kept_sums_of_what_is_not_there_are_none(column: str, tmp_path: Path) -> None:
    """Whoever may write into a capture may also give a digest to what is written there."""
    model = model_of("attempts", tmp_path)
    made = sums_here(model, Selection(), DEFAULT_BY)
    for table in made.tables.values():
        if column in table.columns:
            table.columns[column][:1] = 1000
    keep_sums(model, made)
    assert kept_sums(model) is None


def test_unknown_sums_stay_unknown() -> None:
    """A sum is not known where it is not known in any part."""
    parts = [
        SumTable(("node",), {"node": np.array([0, 1]), "wait_ns": np.array([NOTHING, 5])}),
        SumTable(("node",), {"node": np.array([0, 1]), "wait_ns": np.array([NOTHING, NOTHING])}),
        SumTable(("node",), {"node": np.array([1]), "wait_ns": np.array([2])}),
    ]
    merged = merge_sums(parts).columns
    order = np.argsort(merged["node"])
    assert merged["node"][order].tolist() == [0, 1]
    assert merged["wait_ns"][order].tolist() == [NOTHING, 7]
