"""Captures of all sorts, with which readers have to agree."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ncclscope.simulation.scenario import Call, Communicators, Range, Scenario, Wrong
from tests.support.laboratory.kinds import all_kinds
from tests.support.player import TRANSCRIPTS
from tests.support.rooted_job import record_rooted
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, from_transcript, synthetic
from tests.support.writer.scenario import write_scenario


def attempts(capture: Path) -> None:
    """Two attempts on two nodes, all sorts of calls, a process that is missing, and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=60, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2,
        missing=frozenset({5}), killed=frozenset({2}),
    )  # fmt: skip
    synthetic(capture, spec)


def lost_calls_and_a_mismatch(capture: Path) -> None:
    """A training job: the recorder of rank 1 lost some steps, and rank 3 calls another size than its
    group, which hangs. Calls are in modules.
    """
    scenario = Scenario(
        ranks=4, ranks_per_host=2, steps=12, compute_ms=2, give_up_s=2,
        communicators=(Communicators("tp", 2), Communicators("dp", 2, 2)),
        calls=(
            Call("tp", "AllReduce", 1 << 18),
            Call("dp", "AllReduce", 1 << 18),
            Call("world", "SendRecv", 1 << 16),
        ),
        wrong=(Wrong(3, 10, 1, size=1 << 17),),
        ranges=(Range("step {step}", 0, 2), Range("FSDP::all_gather (blocks.1)", 1, 1)),
    )  # fmt: skip
    write_scenario(capture, scenario, 7, dropped={1: (3, 5)})


def times_by_events(capture: Path) -> None:
    """Two hosts of four ranks, on which a sample is timed by CUDA events. Some collectives are short,
    so that they say more about the clocks of these than the host does.
    """
    kind = all_kinds()["fsdp 8 on 2 hosts, late rank"]
    sampled = replace(kind.recording, timed_every=2)
    replace(kind, recording=sampled).write(capture, 1)


MIXED: dict[str, Callable[[Path], object]] = {
    "attempts": attempts,
    "lost calls and a mismatch": lost_calls_and_a_mismatch,
    "gathers": record_rooted,
    "times by events": times_by_events,
} | {
    name: partial(from_transcript, TRANSCRIPTS / name)
    for name in (
        "2.23.4-v1-2ranks", "2.28.9-v5-3ranks-hang", "2.28.9-v5-4ranks", "2.31.2-v7-2ranks",
    )
}  # fmt: skip
