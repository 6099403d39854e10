"""Sampled times against KernelCh's, of the same operations of one run.

Whoever lists KernelCh in NCCLSCOPE_EVENTS and asks for sampled timing gets both.
"""

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.analysis.sampling import Estimate, Strata, strata_totals, total_of
from ncclscope.capture import dtypes, layout
from ncclscope.capture.metadata import by_kind, event_clocks, read_meta_file
from ncclscope.capture.segment import Damage, map_file, open_file, view_slots
from ncclscope.model.build import open_model
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.process.launch_times import event_excess
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import MODE_EVENTS
from tests.gpu.timing import (
    RANKS,
    Placing,
    build_rank,
    outputs_of,
    pinned,
    rank_environment,
)

FIRST_CALLS = 8  # of a key: all sampled
# Between hosts a block has 48 calls of 16 MiB. One of 64 is sampled; a fourth has all stamps.
BLOCKS, BLOCKS_BETWEEN_HOSTS = 20, 60
_EVENT = (1 << layout.HANDLE_BITS) - 1  # what of a handle numbers an event, as in `operations`


@dataclass(frozen=True)
class Accuracy:
    """One key of one rank."""

    kind: str  # of the operations: a P2p has its launch's time, which is an upper bound
    operations: int
    sampled: int
    size_bytes: int
    kernel_us: float  # medians
    sampled_kernel_us: float  # of the sampled ones
    event_us: float  # less the excess that was measured at init
    excess_us: tuple[float, float, float]  # 5th percentile, median, 95th, of the same operations
    calibrated_us: tuple[float, float]  # excess measured at init: median and spread
    total_error: float  # of the estimated total, as a share of KernelCh's
    total_in_interval: bool

    @property
    def median_error(self) -> float:
        return self.event_us / self.kernel_us - 1

    @property
    def is_bound(self) -> bool:
        return self.kind == "P2p"


def slots_with_handles(folder: Path) -> Iterator[tuple[int, np.void]]:
    """Every slot of a process's log with its handle; of one written twice, the later one last."""
    for path in sorted(folder.glob("log.*")):
        header, data = open_file(path, map_file)
        slots = view_slots(data, header.header_bytes, Damage())
        runs = {layout.KINDS["Block"], layout.KINDS["Updates"]}
        at = 0
        while at < len(slots):
            if int(slots[at]["kind"]) not in runs:
                at += 1
                continue
            run = slots[at : at + 1].view(dtypes.OURS.dtypes["Block"])[0]
            prefix = header.nonce << layout.HANDLE_BITS | int(run["stream"]) << layout.INDEX_BITS
            for i in range(int(run["count"])):
                handle = prefix | (int(run["first"]) + i) & layout.INDEX_MASK
                yield handle, slots[at + 1 + i : at + 2 + i]
            at += 1 + int(run["count"])


def kernel_times(model: Model, process: int) -> dict[int, int]:
    """By event of an operation how long its kernel ran, by KernelCh's stamps as the model has
    repaired them: NCCL reports stamps of other operations now and then.
    """
    columns = details_of_process(model, "channels", process)
    assert columns is not None
    usable = [model.words["stamp"].index(name) for name in ("valid", "repaired", "recovered")]
    rows = np.isin(columns["stamp"], usable) & (columns["operation"] != NONE)
    times: dict[int, tuple[int, int]] = {}
    values = (columns[name][rows].tolist() for name in ("operation", "start_ns", "end_ns"))
    for operation, start, end in zip(*values, strict=True):
        first, last = times.get(operation, (start, end))
        times[operation] = min(first, start), max(last, end)
    events = model.tables["operations"]["event"]
    return {int(events[row]): end - start for row, (start, end) in times.items()}


def read_process(
    folder: Path, kernel_ns: dict[int, int]
) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """Timed launches, and operations by handle with the times of their kernels. `kernel_ns`: by
    event of the call, or of the work where NCCL reports no calls.
    """
    names = {layout.KINDS[n]: n for n in ("KernelLaunch", "Coll", "P2p", "LaunchTime")}
    slots: dict[str, dict[int, np.void]] = {name: {} for name in names.values()}
    for handle, slot in slots_with_handles(folder):
        name = names.get(int(slot[0]["kind"]))
        if name:
            slots[name][handle] = slot.view(dtypes.OURS.dtypes[name])[0]
    operations: dict[int, dict[str, Any]] = {}
    for kind in ("Coll", "P2p"):
        for handle, slot in slots[kind].items():
            operations[handle] = {"key": (kind, int(slot["func"]), int(slot["count"]))}
            for event in (int(slot["parent"]) & _EVENT, handle & _EVENT):
                if kernel_ns.get(event, 0) > 0:
                    operations[handle].setdefault("kernel_ns", kernel_ns[event])
    # Replays are reported by other threads than those that launch; they are not sampled.
    launching = {handle >> layout.INDEX_BITS for handle in slots["KernelLaunch"]}
    operations = {h: o for h, o in operations.items() if h >> layout.INDEX_BITS in launching}
    in_order = sorted(operations)
    timed = []
    for slot in slots["LaunchTime"].values():
        launch = int(slot["parent"])
        place = np.searchsorted(np.array(in_order, np.uint64), np.uint64(launch))
        if slot["reason"] == 0 and place < len(in_order):
            event_ns = int(slot["gpu_stop_ns"]) - int(slot["gpu_start_ns"])
            timed.append({"operation": in_order[place], "event_ns": event_ns})
    return timed, operations


def compare(folder: Path, kernel_ns: dict[int, int]) -> list[Accuracy]:
    """The accuracy of every key of a process; of a group, its first operation counts."""
    timed, operations = read_process(folder, kernel_ns)
    _, meta = read_meta_file(folder / "meta", Damage())
    stated = event_excess(event_clocks(by_kind(meta)))
    events: dict[Any, list[tuple[float, float]]] = {}
    for launch in timed:
        operation = operations[launch["operation"]]
        if "kernel_ns" in operation:
            pair = launch["event_ns"], operation["kernel_ns"]
            events.setdefault(operation["key"], []).append(pair)
    results = []
    for key, pairs in events.items():
        kernels = [
            o["kernel_ns"] for o in operations.values() if o["key"] == key and "kernel_ns" in o
        ]
        if len(pairs) < 12 or len(kernels) < 100:
            continue
        corrected = np.array([max(event - stated.excess_ns, 0) for event, _ in pairs], float)
        excess = np.array([event - kernel for event, kernel in pairs])
        total = estimated_total(corrected, len(kernels), stated.error_ns)
        assert total.low is not None
        assert total.high is not None
        within = sum(kernels) <= total.high and (key[0] == "P2p" or total.low <= sum(kernels))
        results.append(
            Accuracy(
                key[0], len(kernels), len(pairs), key[2] * 4, statistics.median(kernels) / 1e3,
                statistics.median(kernel for _, kernel in pairs) / 1e3,
                float(np.median(corrected)) / 1e3,
                tuple(np.percentile(excess, (5, 50, 95)) / 1e3),
                (stated.excess_ns / 1e3, stated.error_ns / 1e3), total.value / sum(kernels) - 1,
                within,
            )
        )  # fmt: skip
    return sorted(results, key=lambda accuracy: (accuracy.kind, accuracy.size_bytes))


def estimated_total(times: np.ndarray, operations: int, error_ns: float) -> Estimate:
    """The total as `report` states it of one key of one process."""
    first, rest = times[:FIRST_CALLS], times[FIRST_CALLS:]
    apart = rest - rest.mean()
    strata = Strata(
        key=np.zeros(1, np.int64), pool=np.zeros(1, np.int64), population=np.array([operations]),
        firsts=np.array([len(first)]), firsts_ns=np.array([first.sum()]),
        sampled=np.array([len(rest)]), values=np.array([len(rest)]),
        mean_ns=np.array([rest.mean()]), squares=np.array([(apart**2).sum()]),
        cubes=np.array([(apart**3).sum()]), error_ns=np.array([float(error_ns)]),
    )  # fmt: skip
    return total_of(strata, strata_totals(strata), np.zeros(1, np.int64))


def accuracy(placing: Placing) -> list[Accuracy]:
    """Runs the two ranks once, with both ways of timing."""
    with tempfile.TemporaryDirectory() as scratch:
        program, capture = build_rank(Path(scratch)), Path(scratch) / "capture"
        variables = {
            "NCCLSCOPE_DIR": str(capture),
            "NCCLSCOPE_MODE": "trace",
            "NCCLSCOPE_EVENTS": hex(MODE_EVENTS["trace"]),
            "NCCLSCOPE_GPU_TIMING": "sampled",
            "NCCLSCOPE_DISK_LIMIT": "4G",
        }
        commands = []
        for rank in range(RANKS):
            words = [str(program), str(placing.library), str(placing.cudart), str(rank), str(RANKS)]
            blocks = BLOCKS_BETWEEN_HOSTS if placing.hosts > 1 else BLOCKS
            words += [f"{scratch}/id", str(placing.hosts), str(blocks)]
            env = rank_environment(rank, placing.hosts, variables) | {"TIMING_EAGER": "1"}
            commands.append((pinned(rank, words), env))
        outputs_of(commands, 300)
        model = open_model(capture)
        return [
            result
            for process, row in enumerate(model.processes)
            for result in compare(capture / row.folder, kernel_times(model, process))
        ]


HEADER = [
    "NCCL, ranks", "function", "bytes", "operations", "sampled", "KernelCh, µs",
    "of the sampled, µs", "events less excess, µs", "error of the median", "error of the total", "KernelCh's total",
    "excess p5, median, p95, µs", "excess taken off, µs",
]  # fmt: skip


def rows_of(placing: Placing, results: list[Accuracy]) -> list[list[object]]:
    """Rows of the table."""
    return [
        [
            placing.title, "Send/Recv" if a.is_bound else "AllReduce", f"{a.size_bytes:,}",
            a.operations, a.sampled, f"{a.kernel_us:.1f}", f"{a.sampled_kernel_us:.1f}",
            f"{a.event_us:.1f}",
            f"{a.median_error:+.1%}", f"{a.total_error:+.1%}",
            "**outside**" if not a.total_in_interval
            else "below the bound" if a.is_bound else "in the interval",
            ", ".join(f"{value:.1f}" for value in a.excess_us),
            f"{a.calibrated_us[0]:.1f} ± {a.calibrated_us[1]:.1f}",
        ]
        for a in results
    ]  # fmt: skip
