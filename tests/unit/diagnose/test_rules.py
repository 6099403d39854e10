"""Families of findings: on written jobs with something planted, and on models made by hand."""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding, downgrade, sort_findings
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.diagnose.rules import (
    data_quality,
    degradation,
    hints,
    imbalance,
    pauses,
    straggler,
)
from ncclscope.model.build import open_model
from ncclscope.model.node_clock import NodeClock
from ncclscope.report import diagnosis
from ncclscope.simulation.scenario import Late, Never, Scenario
from ncclscope.snapshot.process import unfinished_snapshots
from tests.support.diagnosis import diagnose_capture
from tests.support.model_builders import completeness, model, operation, table, world
from tests.support.planted_faults import FAULTS, PAIRS, PlantedJob, judge_findings, plant_faults
from tests.support.writer import Straggler, SyntheticSpec, Work, synthetic
from tests.support.writer.scenario import write_scenario

RANKS = 32
# Verdicts on hangs and mismatches compare ranks of one communicator: more of them show no more.
# What takes long is compared with other hosts, and of two hosts none is the usual one.
FEW_RANKS = 16
FAULTS_IN_TIME = (
    "late rank", "slow host", "slow link", "bandwidth drop", "imbalance", "lost events",
)  # fmt: skip
# The bars (95 %, 200 healthy jobs) are in benchmarks/diagnose_quality.py; here, one of each.
SEED = 1


def findings(directory: Path, plant: PlantedJob, seed: int) -> tuple[Finding, ...]:
    plant.write(directory / "c", seed)
    try:
        return diagnose_capture(directory / "c").findings
    finally:
        shutil.rmtree(directory / "c")


@pytest.mark.parametrize("kind", FAULTS)
def test_what_was_planted_comes_first(kind: str, tmp_path: Path) -> None:
    ranks = RANKS if kind in FAULTS_IN_TIME else FEW_RANKS
    plant = plant_faults((kind,), SEED, ranks)
    found = findings(tmp_path, plant, SEED)
    assert judge_findings(plant, found) == (True, True, True), found[:3]


@pytest.mark.parametrize("kinds", PAIRS, ids=" + ".join)
def test_two_at_once(kinds: tuple[str, ...], tmp_path: Path) -> None:
    plant = plant_faults(kinds, SEED, RANKS)
    found = findings(tmp_path, plant, SEED)
    assert judge_findings(plant, found)[:2] == (True, True), found[:4]


@pytest.mark.parametrize(("seed", "ranks"), [(1, RANKS), (3, RANKS), (1, 16), (5, 16), (11, 16)])
def test_nothing_is_wrong(seed: int, ranks: int, tmp_path: Path) -> None:
    """Each communicator has slow collectives by chance, and one of them has most."""
    found = findings(tmp_path, plant_faults((), seed, ranks), seed)
    assert all(finding.severity == "info" for finding in found), found


def test_a_hang_in_one_communicator_explains_the_others(tmp_path: Path) -> None:
    """Every tp and dp group hangs; one finding says why."""
    scenario = replace(plant_faults((), SEED, RANKS).scenario, never=(Never(13, 30, 2),))
    found = [f for f in findings(tmp_path, PlantedJob("", scenario), SEED) if f.family == "hang"]
    assert [finding.ranks for finding in found] == [(13,)]
    assert "other communicators wait because of it" in found[0].evidence[1].text


def test_a_rank_that_is_late_for_another_one_is_not_blamed(tmp_path: Path) -> None:
    """Rank 5 is late on tp; its whole group therefore on dp."""
    plant = plant_faults(("late rank",), 3, RANKS)
    late = [f for f in findings(tmp_path, plant, 3) if f.family == "straggler"]
    assert [finding.ranks for finding in late] == [(plant.scenario.late[0].rank,)]


def test_lateness_below_the_noise_is_not_ranked(tmp_path: Path) -> None:
    spec = SyntheticSpec(processes=8, operations=400, straggler=Straggler(3, 2_000))
    synthetic(tmp_path / "c", spec)
    assert not [f for f in straggler.find(RuleContext(open_model(tmp_path / "c"))) if f.ranks]


def test_one_long_pause_is_no_straggler(tmp_path: Path) -> None:
    spec = SyntheticSpec(
        processes=8, operations=400, straggler=Straggler(3, 50_000_000, 0.004), seed=2
    )
    truth = synthetic(tmp_path / "c", spec)
    assert 1 <= (truth.late_rank == 3).sum() <= 4
    context = RuleContext(open_model(tmp_path / "c"))
    assert straggler.find(context) == []
    assert {(finding.kind, finding.ranks) for finding in pauses.find(context)} == {("pause", (3,))}


def test_changes_between_nodes_only(tmp_path: Path) -> None:
    """tp groups lie in nodes, dp groups across; only the latter become slower."""
    fast = Work("AllReduce", 1 << 20, wire_ns=(100_000, 110_000))
    groups = tuple(tuple(range(n * 4, n * 4 + 4)) for n in range(2))
    groups += tuple((n, n + 4) for n in range(4))
    names = ("tp", "tp", "dp", "dp", "dp", "dp")
    before = SyntheticSpec(
        processes=8, operations=200, ranks_per_node=4, communicators=groups,
        communicator_names=names, mix=(fast,),
    )  # fmt: skip
    synthetic(tmp_path / "a", before)
    made = open_model(tmp_path / "a")
    # From the middle on, twice as long between nodes.
    ops, instances = made.tables["operations"], made.tables["instances"]
    ops = {name: np.array(values) for name, values in ops.items()}
    nodes = np.asarray(made.tables["communicators"]["nodes"])
    inter = (nodes[ops["communicator"]] > 1) & (ops["call_order"] >= 50)
    ops["duration_ns"][inter] *= 2
    made = replace(made, tables={**made.tables, "operations": ops, "instances": instances})
    found = degradation.find(RuleContext(made))
    assert [finding.family for finding in found] == ["degradation", "intra_inter"]
    assert found[1].kind == "inter-node"
    assert all(name.startswith("dp") for name in found[1].communicators)


def uneven(heavy: dict[int, int], ranks: int = 8) -> Any:
    """AlltoAll on one communicator; some ranks move so many times as much."""
    rows = [
        operation(
            communicator=0, rank=rank, function="AlltoAll", datatype="float32", source="gpu",
            size_bytes=(1 << 20) * heavy.get(rank, 1), start_ns=1_000_000 * call + 1000,
            duration_ns=200_000 * heavy.get(rank, 1), call_order=call,
        )
        for rank in range(ranks) for call in range(20)
    ]  # fmt: skip
    comms = [{"id": 1, "name_inferred": 0, "ranks": ranks, "nodes": 1}]
    return model(rows, [], comms, ["ep"], world(ranks, 8))


def test_imbalance() -> None:
    (found,) = imbalance.find(RuleContext(uneven({3: 4})))
    assert (found.family, found.ranks, found.severity) == ("imbalance", (3,), "warning")
    assert "4 times the bytes" in found.sentence
    assert not imbalance.find(RuleContext(uneven({})))
    assert not imbalance.find(RuleContext(uneven(dict.fromkeys(range(4), 2)))), "two halves"


def test_windows_that_do_not_begin_together_are_no_imbalance() -> None:
    """`ctl` opened rank 3's window long before the others': all of them call alike."""
    even, ms = uneven({}), 1_000_000
    shares = {3: (0, 20 * ms)}
    windows = [
        {"process": rank, "start_ns": shares.get(rank, (9 * ms, 0))[0], "end_ns": 20 * ms}
        for rank in range(8)
    ]
    ops = even.tables["operations"]
    on_record = (ops["global_rank"] == 3) | (ops["call_ns"] >= 9 * ms)
    tables = even.tables | {
        "windows": table("windows", windows),
        "operations": {name: values[on_record] for name, values in ops.items()},
    }
    rows = [replace(row, lived_ns=90 * ms, recorded_ns=11 * ms) for row in even.processes]
    zoomed = replace(even, tables=tables, processes=rows)
    assert imbalance.find(RuleContext(replace(zoomed, processes=even.processes))), (
        "it looks like one"
    )
    assert not imbalance.find(RuleContext(zoomed))
    # In what all of them recorded, a real one is still found.
    heavy = tables["operations"]["global_rank"] == 5
    tables["operations"]["size_bytes"][heavy] *= 4
    (found,) = imbalance.find(RuleContext(replace(zoomed, tables=tables)))
    assert found.ranks == (5,)


def test_small_messages() -> None:
    rows = [
        operation(
            communicator=0, rank=rank, function="AllReduce", datatype="float32", source="gpu",
            size_bytes=1024, start_ns=30_000 * call + 1000, duration_ns=20_000, call_order=call,
        )
        for rank in range(2) for call in range(200)
    ]  # fmt: skip
    made = model(rows, [], [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}], ["world"], world(2, 2))  # fmt: skip
    (found,) = hints.find_small_messages(RuleContext(made))
    assert found.severity == "info"
    rows = [row | {"source": "host"} for row in rows]
    made = model(rows, [], [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}], ["world"], world(2, 2))  # fmt: skip
    assert not hints.find_small_messages(RuleContext(made)), "times of the host are no times on the wire"  # fmt: skip


def test_stamps_are_counted_by_operations() -> None:
    """Parts of operations have stamps as well, and NCCL 2.26 gives none."""

    def stamped(**columns: Any) -> dict[str, Any]:
        return operation(
            communicator=0, rank=0, function="Send", datatype="float32", size_bytes=64, **columns
        )

    rows = [
        stamped(source="gpu-repaired", start_ns=0, duration_ns=5),
        stamped(source="none", reason="stamp never delivered"),
        stamped(source="none", reason="stamp never delivered", part_of=1),
        stamped(source="host", reason="Broadcast takes NCCL's AllGatherV path", duration_ns=5),
    ]
    made = model(rows, [], [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}], ["w"], world(2, 2))  # fmt: skip
    (found,) = (f for f in data_quality.find(RuleContext(made)) if f.kind == "stamps")
    assert found.sentence == (
        "2 operations had stamps of other operations: 1 repaired, 1 left without times of the GPU"
    )
    made = model(rows[3:], [], [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}], ["w"], world(2, 2))  # fmt: skip
    assert not [f for f in data_quality.find(RuleContext(made)) if f.kind == "stamps"]


def test_nodes_that_are_not_known_are_not_counted() -> None:
    comm = [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}]
    made = model([], [], comm, ["w"], world(2, 1), nodes=2)
    none = np.zeros(1, np.int64)
    clocks = tuple(NodeClock(none, none, np.zeros(1), cluster) for cluster in range(2))
    made = replace(made, clocks=clocks)
    (found,) = (f for f in data_quality.find(RuleContext(made)) if f.kind == "untied")
    assert found.sentence.startswith("clocks of 1 node are not tied")
    dumps = replace(made, nodes=["", ""])  # Flight Recorder dumps do not name their hosts
    (found,) = (f for f in data_quality.find(RuleContext(dumps)) if f.kind == "untied")
    assert found.sentence.startswith("clocks of 1 process (which share a host is not known)")


def test_one_host_has_one_clock() -> None:
    instance = {"communicator": 0, "error_ns": 2_000_000, "skew_ns": 100_000}
    comm = [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}]
    one = model([], [instance], comm, ["w"], world(2, 2))
    (found,) = (f for f in data_quality.find(RuleContext(one)) if f.kind == "clock error")
    assert found.sentence.startswith("clocks of GPUs are known to ± 2.00 ms only")
    assert "mode full" not in found.advice
    two = model([], [instance], comm, ["w"], world(2, 1), nodes=2)
    (found,) = (f for f in data_quality.find(RuleContext(two)) if f.kind == "clock error")
    assert found.sentence.startswith("clocks of nodes are known")
    assert "mode full ties clocks better" in found.advice


def test_data_quality_says_what_is_missing() -> None:
    made = replace(
        uneven({}),
        completeness=completeness(
            processes_expected=9, processes_found=8, dropped={"arena full": 17}, operations=160,
        ),
    )  # fmt: skip
    found = data_quality.find(RuleContext(made))
    assert {finding.kind for finding in found} >= {"missing", "dropped"}
    assert all(finding.severity == "info" for finding in found)
    assert "17 events dropped" in " ".join(finding.sentence for finding in found)


def test_what_rests_on_absence_counts_less() -> None:
    one = Finding("hang", "critical", "s", "a", by_absence=True)
    assert downgrade(one, "3 events dropped").severity == "warning"
    assert downgrade(one, "x").confidence < one.confidence
    worse, better = Finding("straggler", "warning", "", "", lost_share=0.2), Finding("imbalance", "warning", "", "", lost_share=0.1)  # fmt: skip
    assert sort_findings([better, worse, one]) == (one, worse, better)


def test_a_hang_counts_less_when_ranks_are_missing(tmp_path: Path) -> None:
    """That a rank never called is not sure where others left nothing."""
    scenario = replace(plant_faults((), SEED, RANKS).scenario, never=(Never(13, 30, 2),))
    write_scenario(tmp_path / "c", scenario, SEED)
    whole = diagnose_capture(tmp_path / "c")
    assert (whole.findings[0].ranks, whole.findings[0].severity) == ((13,), "critical")
    assert not whole.missing
    early = open_model(tmp_path / "c")
    early = replace(early, completeness=replace(early.completeness, counts_end_early=32))
    killed = diagnose(early, unfinished_snapshots(early))
    assert killed.missing  # what other findings rest on
    assert (killed.findings[0].ranks, killed.findings[0].severity) == ((13,), "critical")
    assert killed.findings[0].confidence == whole.findings[0].confidence
    shutil.rmtree(next((tmp_path / "c").glob(f"*.{10_000 + 4 * 20}.*")))
    less = diagnose_capture(tmp_path / "c")
    (hang,) = [finding for finding in less.findings if finding.ranks == (13,)]
    assert hang.severity == "warning"
    assert "1 of 32 processes missing" in hang.evidence[-1].text


@pytest.mark.parametrize(("ranks", "place"), [(1, "GPU 1b:00.0"), (2, "pid")])
def test_a_gpu_is_named_where_it_is_the_ranks_own(tmp_path: Path, ranks: int, place: str) -> None:
    spec = SyntheticSpec(processes=2, ranks_per_process=ranks, ranks_per_node=ranks, operations=5)
    synthetic(tmp_path / "c", spec)
    model = open_model(tmp_path / "c")
    model.processes[:] = [replace(row, gpu="0000:1b:00.0") for row in model.processes]
    for rank in range(2 * ranks):
        assert place in RuleContext(model).where(rank)
        assert ("GPU" in RuleContext(model).where(rank)) == (ranks == 1)


def test_commands_can_be_copied_whatever_names_a_job_has(tmp_path: Path) -> None:
    """Names come from the job, and what is printed ends up in a shell."""
    evil = "a;touch pwned $(id) " + "x" * 60
    capture = tmp_path / "it's here"
    write_scenario(capture, Scenario(ranks=4, steps=30, late=(Late(2, 20.0),)))
    opened = open_model(capture)
    named = replace(opened, communicator_names=[evil] * len(opened.communicator_names))
    found = diagnose(named, unfinished_snapshots(named))
    shown = list(diagnosis.lines(named, found, 80, "/a b/ncclscope"))
    (command,) = [line.partition("$ ")[2] for line in shown if line.startswith("    $ ")]
    words = shlex.split(command.removeprefix("/a b/ncclscope"))
    assert words == ["report", str(capture), "--by", "rank", "--comm", evil]
