"""Training steps: how long they took, what they waited for, and how much of NCCL is exposed.

Lengths are those of the host: from the end of one step to the end of the next. NCCL's part is GPU
time of the operations that were called in the step, so it does not matter how far the host runs
ahead. Communication is exposed where the GPU computes nothing meanwhile. At least exposed is what
runs on the stream that computes; at most, all of it. The truth between them needs kernel times.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.kernel_time import union_lengths
from ncclscope.analysis.measures import percentiles
from ncclscope.analysis.sampling import is_sampled
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_CODES, NONE

_PHASE_COLUMNS = ("data_ns", "forward_ns", "backward_ns", "optimizer_ns")
_WARM_UP, _MOST_WARM_UP = 1.3, 10  # times the median; steps at the begin, at most
_PAUSE = 3.0  # times the median: a checkpoint, an evaluation, garbage collection
# Dense bf16 FLOP/s of one GPU by a part of its name, from NVIDIA's data sheets; longest first.
_PEAK_FLOPS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100": 989e12,
    "H800": 989e12,
    "B200": 2250e12,
    "GB200": 2500e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "A10G": 70e12,
    "L4": 121e12,
    "V100": 112e12,
}


@dataclass(frozen=True, slots=True)
class StepParts:
    """Where the time of a step goes, on the average rank, in ns. NCCL overlaps with the others."""

    length: float
    data: float
    forward: float
    backward: float
    optimizer: float
    nccl: float | None  # a kernel of NCCL runs; None where none is timed
    wait: float | None  # of it: until the last rank arrived
    exposed_low: float | None  # None where the computing stream is not known

    @property
    def rest(self) -> float:
        """Time of the host in none of the phases."""
        return max(self.length - self.data - self.forward - self.backward - self.optimizer, 0.0)


@dataclass(frozen=True, slots=True)
class StepSummary:
    """All steps of a job."""

    origin: str  # how steps are known
    first: int  # numbers
    last: int
    steps: int  # that ended
    warm_up: int  # first steps that took longer, left out of all that follows
    pauses: int  # later steps that took far longer: left out of the parts
    median_ns: float
    p99_ns: float
    longest_ns: float
    longest_step: int
    parts: StepParts  # of the average step
    tokens_per_second: float | None
    mfu: float | None  # an estimate
    lengths_ns: tuple[tuple[int, int], ...]  # number and length of each step
    under_way: int | None  # the step that has not ended


def step_summary(model: Model) -> StepSummary | None:
    """The steps of a model; None where it has none."""
    table = model.tables["steps"]
    ended = np.asarray(table["end_ns"]) != NONE
    if not ended.any():
        return None
    numbers = np.asarray(table["step"])[ended].astype(np.int64)
    lengths = (np.asarray(table["end_ns"]) - np.asarray(table["start_ns"]))[ended]
    steps, length = _by_step(numbers, lengths)
    warm_up = _warm_up(length)
    steady = length[warm_up:]
    median, p99 = percentiles(steady)
    usual = np.isin(numbers, steps[warm_up:][steady <= _PAUSE * median])
    longest = int(np.argmax(steady))
    late = np.asarray(table["step"])[~ended]
    parts = _parts(model, ended, usual)
    tokens = np.asarray(table["tokens"])[ended][usual]
    return StepSummary(
        origin=model.words["origin"][int(np.asarray(table["origin"])[ended][0])],
        first=int(steps[0]),
        last=int(steps[-1]),
        steps=len(steps),
        warm_up=warm_up,
        pauses=int((steady > _PAUSE * median).sum()),
        median_ns=median,
        p99_ns=p99,
        longest_ns=float(steady[longest]),
        longest_step=int(steps[warm_up + longest]),
        parts=parts,
        tokens_per_second=_per_second(model, tokens, parts.length),
        mfu=_mfu(model, tokens, np.asarray(table["flops"])[ended][usual], parts.length),
        lengths_ns=tuple(zip(steps.tolist(), length.astype(np.int64).tolist(), strict=True)),
        under_way=int(late.max()) if len(late) else None,
    )


def _by_step(numbers: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Steps in order, and the median of each one's length over processes."""
    order = np.lexsort((lengths, numbers))
    steps, first, count = np.unique(numbers[order], return_index=True, return_counts=True)
    return steps, lengths[order][first + (count - 1) // 2]


def _warm_up(length: Ints) -> int:
    """How many of the first steps took longer than usual: compilation, caches, connections."""
    usual = _WARM_UP * float(np.median(length))
    most = min(_MOST_WARM_UP, len(length) // 2)
    slow = np.flatnonzero(length[:most] <= usual)
    return int(slow[0]) if len(slow) else most


def _parts(model: Model, ended: Bools, usual: Bools) -> StepParts:
    table = model.tables["steps"]
    count = max(int(usual.sum()), 1)
    phases = [
        float(np.maximum(np.asarray(table[name])[ended][usual], 0).sum()) / count
        for name in _PHASE_COLUMNS
    ]
    length = (np.asarray(table["end_ns"]) - np.asarray(table["start_ns"]))[ended][usual]
    process = np.asarray(table["process"])[ended][usual].astype(np.int64)
    step = np.asarray(table["step"])[ended][usual].astype(np.int64)
    nccl, wait, serial = _nccl_parts(model, process << 32 | step)
    return StepParts(
        float(length.sum()) / count,
        *phases,
        *(None if value is None else value / count for value in (nccl, wait, serial)),
    )


def _nccl_parts(model: Model, wanted: Ints) -> tuple[float | None, float | None, float | None]:
    """Union of NCCL's kernels in these steps of processes (process << 32 | step), the part of it
    that waits for the last rank, and the union of those on the computing streams; None where some
    of them were timed and stand for all.
    """
    if is_sampled(model):
        return None, None, None
    operations = model.tables["operations"]
    step = np.asarray(operations["step"]).astype(np.int64)
    rows = np.flatnonzero(
        (step != NONE) & np.isin(operations["source"], GPU_CODES)
        & (np.asarray(operations["part_of"]) == NONE)
    )  # fmt: skip
    process = np.asarray(operations["process"])[rows].astype(np.int64)
    key = process << 32 | step[rows]
    own = np.isin(key, wanted)
    rows, key, process = rows[own], key[own], process[own]
    if not len(rows):
        return None, None, None
    start, end = (np.asarray(operations[name])[rows] for name in ("start_ns", "end_ns"))
    _, lengths = union_lengths(key, start, end)
    wait = np.asarray(operations["wait_ns"])[rows]
    waits = wait != NONE
    waited = None
    if waits.any():
        waited = float(union_lengths(key[waits], start[waits], (start + wait)[waits])[1].sum())
    serial = None
    if model.training.compute_streams:
        streams = np.full(len(model.processes) + 1, NONE, np.int64)
        for row, stream in model.training.compute_streams.items():
            if row.isdigit() and int(row) < len(model.processes):
                streams[int(row)] = stream
        of_compute = np.asarray(operations["stream"])[rows] == streams[process]
        serial = 0.0
        if of_compute.any():
            kept = key[of_compute], start[of_compute], end[of_compute]
            serial = float(union_lengths(*kept)[1].sum())
    return float(lengths.sum()), waited, serial


def _total(values: Ints) -> float | None:
    """The mean of what processes said of a step; None where one said nothing."""
    return None if not len(values) or (values == NONE).any() else float(values.mean())


def _per_second(model: Model, tokens: Ints, length_ns: float) -> float | None:
    mean = _total(tokens)
    if mean is None or not length_ns:
        return None
    return mean * len(model.processes) / (length_ns / 1e9)


def _mfu(model: Model, tokens: Ints, flops: Ints, length_ns: float) -> float | None:
    """The share of the GPU's peak that the model's arithmetic needs: 6 x parameters x tokens for
    forward and backward, unless the program said how much it is.
    """
    peak = next(
        (value for name, value in _PEAK_FLOPS.items() if name in model.training.device), None
    )
    needed, said = _total(flops), _total(tokens)
    if needed is None and said is not None and model.training.parameters:
        needed = 6.0 * model.training.parameters * said
    if peak is None or needed is None or not length_ns:
        return None
    return needed / (length_ns / 1e9) / peak
