"""What a profiler recorded in one run, by its own files: calls by rank, function and size."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.analysis.counter_totals import Histograms, counter_totals
from ncclscope.analysis.sampled_counters import sampled_counters
from ncclscope.arrays.types import Ints
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.results import BenchDevice
from ncclscope.capture.reader import resolve_capture
from ncclscope.capture.salvage import salvage
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.ingest import example_profiler
from ncclscope.ingest.formats import ImportPlan, import_files, plan_import
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.schema import CALL_LEVEL, LEVELS, NONE, WORK_LEVEL
from ncclscope.nccl.functions import FUNCTIONS

_COUNTING_MODE = "profile"  # of a killed process, the newest operations are there, too
# Their sizes are those of NCCL's descriptors: of AllGather and ReduceScatter one rank's share.
_OF_ONE_RANK = ("example", "comma")
_TIMED_BY = ("gpu", "gpu-event", "host")  # of counters, best first


@dataclass(frozen=True, slots=True)
class Records:
    """A profiler's records of one rank, function and size, in order."""

    rank: int
    function: str
    size_bytes: int  # as nccl-tests count them; -1: unknown
    count: int
    durations_ns: tuple[int, ...] = ()  # -1: no time; empty: no single times
    sequences: tuple[int, ...] = ()  # NCCL's numbers; empty: unknown
    timed: int = 0  # how many have a time
    sampled: bool = False  # times of some calls, nobody knows of which
    source: str = ""  # of most times, as the model names it
    estimated_ns: int = -1  # time of all calls by the report's estimate; -1: not from a sample

    def as_json(self) -> dict[str, Any]:
        """The records as a JSON object."""
        return asdict(self)


def records_from_json(content: Mapping[str, Any]) -> Records:
    """The records that `as_json` gave."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return Records(**values)


@dataclass(frozen=True, slots=True)
class Recording:
    """All records of one run, and what its files take."""

    records: tuple[Records, ...] = ()
    bytes_written: int = 0
    files: int = 0
    problem: str = ""  # why nothing could be read


def bytes_below(folder: Path) -> tuple[int, int]:
    """Bytes that files below a folder occupy, holes left out, and the number of files."""
    total = files = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                total += min(status.st_size, status.st_blocks * 512)
                files += 1
    return total, files


def read_recording(profiler: Profiler, output: Path, devices: Sequence[BenchDevice]) -> Recording:
    """What the profiler recorded below `output`, of the ranks that ran on `devices`."""
    if profiler.reader == "capture":
        with suppress(NcclscopeError, OSError):
            salvage(output / "capture")  # or the arena of a killed process stays in memory
    size_bytes, files = bytes_below(output)
    if not profiler.reader:
        return Recording((), size_bytes, files)
    ranks = RankFinder(devices)
    try:
        if profiler.reader == "capture":
            records = _capture_records(output / "capture", ranks)
        else:
            records = _import_records(profiler, output, ranks)
        if profiler.reader in _OF_ONE_RANK:
            records = [_of_all_ranks(own, len(devices)) for own in records]
    except NcclscopeError as error:
        return Recording((), size_bytes, files, str(error))
    return Recording(tuple(records), size_bytes, files)


def _of_all_ranks(records: Records, ranks: int) -> Records:
    """Records with sizes as nccl-tests count them, of a profiler that gives one rank's share."""
    function = FUNCTIONS.get(records.function)
    if function is None or not function.counts_one_rank or records.size_bytes < 0:
        return records
    return replace(records, size_bytes=records.size_bytes * ranks)


class RankFinder:
    """Finds the rank of a process that a profiler names: by process id, else by its own rank."""

    def __init__(self, devices: Sequence[BenchDevice]) -> None:
        self._by_pid: dict[int, list[BenchDevice]] = {}
        for device in devices:
            self._by_pid.setdefault(device.pid, []).append(device)

    def rank(self, host: str, pid: int, own_rank: int) -> int:
        """The rank; NONE where nothing tells it."""
        devices = self._by_pid.get(pid, [])
        if len(devices) > 1:  # the same number on several hosts
            devices = [device for device in devices if device.host == host]
        return devices[0].rank if devices else own_rank


def _capture_records(capture: Path, ranks: RankFinder) -> list[Records]:
    if not capture.is_dir():
        return []
    try:
        model = open_model(resolve_capture(str(capture)))
        return list(model_records(model, ranks))
    except OSError as error:
        raise NcclscopeError(f"cannot read {capture}: {error.strerror}") from None


def _import_records(profiler: Profiler, output: Path, ranks: RankFinder) -> list[Records]:
    if profiler.reader == "example":
        files = tuple(sorted(output.glob("trace*.json")))
        plan: ImportPlan | None = ImportPlan(example_profiler.FORMAT, files, (), 0)
    else:
        plan = _first_plan(profiler.reader.split(","), output)
    if plan is None or not plan.files:
        return []
    with tempfile.TemporaryDirectory(prefix="ncclscope-bench-") as folder:
        return list(model_records(import_files(plan, Path(folder)), ranks))


def _first_plan(formats: Sequence[str], output: Path) -> ImportPlan | None:
    """The files of the first of these formats that has any; None: of none."""
    for name in formats:
        with suppress(UsageError):
            return plan_import([output], name)
    return None


def model_records(model: Model, ranks: RankFinder) -> Iterator[Records]:
    """The records of a model: of single operations where it has them, else of its counters."""
    operations = model.tables["operations"]
    whole = operations["part_of"] < 0
    estimates = _estimated_totals(model)
    for row, process in enumerate(model.processes):
        own = np.flatnonzero(whole & (operations["process"] == row))
        if len(own) and process.mode != _COUNTING_MODE:
            for rank in np.unique(operations["rank"][own]).tolist():
                rows = own[operations["rank"][own] == rank]
                job_rank = ranks.rank(process.host, process.pid, process.global_rank)
                yield from _operation_records(model, rows, rank if job_rank == NONE else job_rank)
        else:
            rank = ranks.rank(process.host, process.pid, process.global_rank)
            for records in _counter_records(model, row, rank):
                key = (row, records.function, records.size_bytes)
                yield replace(records, estimated_ns=estimates.get(key, -1))


def _estimated_totals(model: Model) -> dict[tuple[int, str | None, int | None], int]:
    """Time of all calls where a sample was timed, by process, function and size. First calls are
    all timed and long: a mean of all timed ones times the number of calls would be too much.
    """
    totals = list(counter_totals(model, Histograms(model)))
    sampled = sampled_counters(model, totals)
    places: dict[tuple[int, str | None, int | None], list[int]] = {}
    for place, (key, total) in enumerate(totals):
        places.setdefault((total.process, key.function, key.size_bytes), []).append(place)
    if sampled is None:
        return {}
    strata = {key: sampled.strata_of(own) for key, own in places.items()}
    return {
        key: round(sampled.strata.total_ns(rows).value) for key, rows in strata.items() if len(rows)
    }


def _operation_records(model: Model, rows: Ints, rank: int) -> Iterator[Records]:
    operations, words = model.tables["operations"], model.words
    functions, sizes = operations["function"][rows], operations["size_bytes"][rows]
    for code in np.unique(functions).tolist():
        for size in np.unique(sizes[functions == code]).tolist():
            own = rows[(functions == code) & (sizes == size)]
            sequences = operations["sequence"][own]
            durations = operations["duration_ns"][own]
            # Those without a time have a source, too: none.
            timed = own[durations >= 0]
            sources = operations["source"][timed if len(timed) else own]
            yield Records(
                rank,
                words["function"][code],
                size,
                len(own),
                tuple(durations.tolist()),
                tuple(sequences.tolist()) if (sequences >= 0).all() else (),
                timed=len(timed),
                source=words["source"][int(np.bincount(sources).argmax())],
            )


def _counter_records(model: Model, process: int, rank: int) -> Iterator[Records]:
    """Records of counters: calls where the interface reports them, else NCCL's works."""
    counters, words = model.tables["counters"], model.words
    own = np.flatnonzero(counters["process"] == process)
    levels = np.array([words["level"][code] for code in counters["level"][own]], object)
    calls, works = own[levels == LEVELS[CALL_LEVEL]], own[levels == LEVELS[WORK_LEVEL]]
    counted = calls if len(calls) else works
    keys = {(int(counters["function"][row]), int(counters["size_bytes"][row])) for row in counted}
    excess_ns = max(model.processes[process].event_excess_ns, 0)
    for function, size in sorted(keys):
        count = int(counters["calls"][_rows_of(counters, counted, function, size)].sum())
        # NCCL 2.29.2 and later report a Broadcast as a call alone: its times are the call's.
        timed = _rows_of(counters, works, function, size)
        timed = timed if len(timed) else _rows_of(counters, calls, function, size)
        source, times = _sampled_times(model, timed, excess_ns)
        name = words["function"][function]
        yield Records(
            rank, name, size, count, tuple(times), timed=len(times), sampled=True, source=source
        )


def _rows_of(counters: Mapping[str, Any], rows: Ints, function: int, size: int) -> Ints:
    same = (counters["function"][rows] == function) & (counters["size_bytes"][rows] == size)
    return np.asarray(rows[same], np.int64)


def _sampled_times(model: Model, counters: Ints, excess_ns: int) -> tuple[str, list[int]]:
    """The best source of these counters' times, and the times: the middles of their buckets."""
    histograms = model.tables["counter_histograms"]
    rows = np.flatnonzero(np.isin(histograms["counter"], counters))
    sources = [model.words["source"][code] for code in histograms["source"][rows].tolist()]
    for source in _TIMED_BY:
        own = rows[[name == source for name in sources]]
        if not len(own):
            continue
        from_ns, to_ns = histograms["from_ns"][own], histograms["to_ns"][own]
        middle_ns = np.where(to_ns > 0, (from_ns + to_ns) // 2, from_ns)
        middle_ns = middle_ns - (excess_ns if source == "gpu-event" else 0)
        return source, np.repeat(middle_ns, histograms["works"][own]).tolist()
    return "none", []
