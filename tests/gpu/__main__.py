"""`python -m tests.gpu [PART…]`: real NCCL, in slices of minutes; without a name, all parts.

`--nccl DIR` holds further NCCL releases as libnccl-<release>.so or .so.gz; without it only the one
that PyTorch brings is tried. Results go to docs/measurements/nccl.md.
"""

import argparse
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.results import publish, rows_of, table
from tests.gpu import timing, timing_accuracy, timing_pairs
from tests.gpu.accuracy import (
    MOST_PERCENT,
    MOST_US,
    SAMPLED_HEADER,
    accuracy,
    sampled_accuracy,
    sampled_rows,
)
from tests.gpu.coverage import CASES, FATAL_CASES, Row, coverage
from tests.gpu.mode_switch import RANKS as SWITCHED_RANKS
from tests.gpu.mode_switch import switch_modes
from tests.gpu.mps import mps
from tests.gpu.overhead import BAR, CALLS, COMMUNICATORS, ROUNDS, Placing, find_cudart, overhead
from tests.gpu.planted_faults import diagnose_planted_faults
from tests.gpu.system_counters import sample_busy_gpu
from tests.gpu.timing import Placing as Placed
from tests.gpu.torchrun import torchrun
from tests.support.bench_accuracy import CALLS as BENCH_CALLS
from tests.support.bench_accuracy import (
    MOST_GAP_PERCENT,
    RUNS,
    WAYS,
    Comparison,
    bench_accuracy,
)

MULTI_RANK_RELEASE = "2.30.7"  # allows two ranks on one GPU of one host


def torch_release() -> str:
    """NCCL's release in the PyTorch that is installed."""
    code = "import torch; print('.'.join(map(str, torch.cuda.nccl.version())))"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def torch_library() -> Path:
    """The NCCL that PyTorch brings."""
    code = "import nvidia.nccl as n; print(list(n.__path__)[0])"
    return Path(subprocess.check_output([sys.executable, "-c", code], text=True).strip()) / (
        "lib/libnccl.so.2"
    )


def unpack_libraries(directory: Path) -> dict[str, Path]:
    """Further NCCL libraries by release."""
    paths = {}
    for packed in sorted(directory.glob("libnccl-*.so*")):
        path = packed.with_suffix("") if packed.suffix == ".gz" else packed
        if packed != path and not path.exists():
            with gzip.open(packed) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        paths[path.name.removeprefix("libnccl-").removesuffix(".so")] = path.resolve()
    return paths


def libraries(directory: Path | None, releases: str | None) -> dict[str, Path | None]:
    """NCCL libraries by release; None stands for PyTorch's own."""
    paths: dict[str, Path | None] = {f"{torch_release()} (torch)": None}
    paths |= unpack_libraries(directory) if directory else {}
    if releases:
        wanted = releases.split(",")
        paths = {name: path for name, path in paths.items() if name.split()[0] in wanted}
    return paths


def gpu_name() -> str:
    """The GPU and its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.check_output(query, text=True).strip().split(", ")
    return f"{name}, driver {driver}"


def percent(row: Row) -> str:
    """Share of calls on record; nothing where NCCL reports nothing."""
    return f"{100 * row.recorded / row.made:.4g} %" if row.made else "–"


def publish_coverage(rows: list[Row]) -> None:
    """The table, with the rows of other releases and numbers of ranks that stand there already."""
    header = ["NCCL", "ranks", "case", "calls made", "on record", "", "NCCL reports nothing of"]
    rows_by_key: dict[tuple[str, ...], list[object]] = {
        tuple(str(cell) for cell in row[:3]): row for row in rows_of("gpu-coverage")
    }
    for r in rows:
        row = [r.nccl, r.ranks, r.case, r.made, r.recorded, percent(r), r.invisible or ""]
        rows_by_key[r.nccl, str(r.ranks), r.case] = row
    note = (
        f"All ranks share one {gpu_name()}, each posing as a host of its own. Calls of all ranks "
        "together, graph replays and captured calls included. The ranks of `hang` and `mismatch` "
        "end by SIGKILL. NCCL reports no event of communicators of one rank to any plugin: their "
        "calls stand in the last column; AlltoAll does not exist before 2.28."
    )
    sorted_rows = [rows_by_key[key] for key in sorted(rows_by_key)]
    publish("gpu-coverage", f"{table(header, sorted_rows)}\n\n{note}")


def show_coverage(arguments: argparse.Namespace) -> bool:
    """Calls made against calls on record."""
    worlds = tuple(int(world) for world in arguments.worlds.split(","))
    by_release = libraries(arguments.nccl, arguments.releases)
    rows = coverage(by_release, worlds, arguments.cases.split(","), publish_coverage)
    wrong = [row for row in rows if row.differences]
    for row in wrong:
        print("DIFFERENT", row, file=sys.stderr)
    return not wrong


def show_overhead(arguments: argparse.Namespace) -> bool:
    """What recording adds to calls."""
    placings = [Placing(f"two hosts, {torch_release()}", torch_library(), 2)]
    further = unpack_libraries(arguments.nccl) if arguments.nccl else {}
    if MULTI_RANK_RELEASE in further:
        title = f"one host, {MULTI_RANK_RELEASE}"
        placings.append(Placing(title, further[MULTI_RANK_RELEASE], 1))
    return overhead(placings, publish_overhead)


def publish_overhead(rows: list[list[object]]) -> None:
    """The table."""
    header = ["ranks pose as", "function", "bytes", "calls", "mode"]
    header += ["no plugin, µs", "empty plugin, µs", "ncclscope, µs"]
    header += ["one clock read a callback, ratio to empty [95 %]"]
    header += ["ncclscope, ratio to empty [95 %]", f"≤ {BAR}"]
    note = (
        f"Two ranks on one {gpu_name()} under CUDA MPS, each on four cores of its own. "
        f"{COMMUNICATORS} communicators in each mode; in each {ROUNDS} rounds of three blocks in "
        f"random order, one with each plugin, {CALLS} calls a block (of 1 MiB a tenth); the slower "
        "rank counts. Synchronised: one call and a stream synchronisation, median of the block. Back to back: "
        "mean without waiting in between. All plugins get the same events. The ratio is the median "
        "over rounds, its interval by bootstrap. One clock read a callback: a plugin that does "
        "nothing else."
    )
    publish("gpu-overhead", f"{table(header, rows)}\n\n{note}")


def show_torchrun(_: argparse.Namespace) -> bool:
    """`ncclscope run` in front of torchrun."""
    rows, fine = torchrun()
    header = ["rank", "function", "calls made", "on record"]
    note = f"`ncclscope run -- torchrun`, two ranks on one {gpu_name()}, NCCL {torch_release()}."
    publish("gpu-torchrun", f"{table(header, rows)}\n\n{note}")
    return fine


def show_accuracy(_: argparse.Namespace) -> bool:
    """Durations against CUDA events."""
    results = accuracy()
    header = ["function", "algorithm", "bytes", "source", "CUDA events, µs", "ncclscope, µs"]
    header += ["error of a call, µs", "%", f"≤ {MOST_PERCENT} % or {MOST_US} µs"]
    rows: list[list[object]] = [
        [
            a.function,
            a.algorithm,
            f"{a.size_bytes:,}",
            a.source,
            f"{a.events_us:.1f}",
            f"{a.model_us:.1f}",
            f"{a.error_us:.1f}",
            f"{a.error_percent:.2f}",
            ("holds" if a.holds else "**does not hold**") if a.source == "gpu" else "a lower bound",
        ]
        for a in results
    ]
    note = (
        f"Two ranks on one {gpu_name()} under CUDA MPS, each posing as a host, NCCL "
        f"{torch_release()}, trace mode. Medians over calls and ranks. CUDA events around each "
        "call, less what they show around an empty kernel."
    )
    publish("gpu-accuracy", f"{table(header, rows)}\n\n{note}")
    return all(a.holds for a in results if a.source == "gpu")


def publish_bench(results: list[Comparison]) -> None:
    """The table, with the rows that stand there already and were not measured again."""
    header = ["ranks", "operation", "calls", "bytes", "timed", "made", "in the capture"]
    header += ["bench, µs", "ncclscope, µs", "source", f"≤ {MOST_PERCENT} % or {MOST_US} µs"]
    header += ["sum of calls / loop", "#wrong"]
    rows = {tuple(str(cell) for cell in row[:4]): row for row in rows_of("gpu-bench")}
    for c in results:
        row: list[object] = [
            c.ranks,
            c.operation,
            c.way,
            f"{c.size_bytes:,}",
            c.calls,
            c.made,
            c.recorded,
            f"{c.bench_us:.1f}",
            "–" if c.ours_us is None else f"{c.ours_us:.1f}",
            c.source,
            c.verdict,
            c.loop,
            c.wrong,
        ]
        rows[tuple(str(cell) for cell in row[:4])] = row
    note = (
        f"`ncclscope bench` with int32, out of place, {RUNS} runs of {BENCH_CALLS} calls, of large "
        "sizes as many as 2 s a run allow (held: 0.6 s). Made: on all ranks, warm-up and check "
        f"included. All ranks share one {gpu_name()} under CUDA MPS, each posing as a host, NCCL "
        f"{torch_release()}, trace mode. Medians over calls and ranks; of the events' times, what "
        "they show beyond its own time around a kernel that ends on all ranks at once is taken off. "
        "Back to back: as programs make calls, so "
        "that the GPU may wait for the host between a call's events. Held: the GPU begins when a "
        "batch of calls is queued. The last column but one: all calls' times by one pair of events round "
        f"the loop, with the reason where they differ by over {MOST_GAP_PERCENT} %."
    )
    sorted_rows = sorted(rows.values(), key=lambda row: int(str(row[0])))
    publish("gpu-bench", f"{table(header, sorted_rows)}\n\n{note}")


def show_bench(arguments: argparse.Namespace) -> bool:
    """The benchmark, recorded by ncclscope."""
    worlds = tuple(int(world) for world in arguments.worlds.split(","))
    with mps():
        results = bench_accuracy(worlds, arguments.ways.split(","), publish_bench)
    complete = all(c.made == c.recorded and not c.wrong for c in results)
    return complete and all(c.holds is not False for c in results)


def show_diagnose(_: argparse.Namespace) -> bool:
    """Status and diagnose on jobs with something wrong."""
    rows = diagnose_planted_faults()
    header = ["case", "ranks", "when", "verb", "to be found", "found first", ""]
    table_rows: list[list[object]] = [
        [r.case, r.ranks, r.moment, r.verb, r.expected, r.answer, "holds" if r.holds else "**no**"]
        for r in rows
    ]
    note = (
        f"Ranks share one {gpu_name()}, each posing as a host of its own, NCCL {torch_release()}, "
        "mode full. The last rank does not come to the last AllReduce, calls AllGather instead, or "
        "comes 20 ms late to each call."
    )
    publish("gpu-diagnose", f"{table(header, table_rows)}\n\n{note}")
    return all(row.holds for row in rows)


def show_ctl(_: argparse.Namespace) -> bool:
    """`ncclscope ctl` on a running job."""
    with mps():
        rows, answer, fine = switch_modes()
    header = ["rank", "calls made", "counted", "on record", "proxy steps", "missing within"]
    header += ["modes that followed"]
    note = (
        f"`ncclscope run --mode profile` in front of {SWITCHED_RANKS} ranks on one {gpu_name()} under "
        f"CUDA MPS, NCCL {torch_release()}. `ncclscope ctl` said: {answer}."
    )
    publish("gpu-ctl", f"{table(header, rows)}\n\n{note}")
    return fine


def show_system(_: argparse.Namespace) -> bool:
    """Counters of a GPU that a job keeps busy."""
    rows, plausible = sample_busy_gpu()
    note = (
        f"`ncclscope run --system` in front of torchrun, two ranks on one {gpu_name()}, multiplying "
        "matrices and copying them to the host; a sample every half a second. NVML says which GPU "
        "a counter is of, NCCL's processes say which one is theirs: both ranks were found on it."
    )
    header = ["counter", "median", "meaning"]
    publish("gpu-system", f"{table(header, [list(row) for row in rows])}\n\n{note}")
    return plausible


def timing_placings(arguments: argparse.Namespace) -> list[Placed]:
    """PyTorch's NCCL as two hosts, the others as one; of --releases only these."""
    cudart = find_cudart()
    placings = [Placed(torch_release(), torch_library(), cudart, 2)]
    further = unpack_libraries(arguments.nccl) if arguments.nccl else {}
    placings += [Placed(release, path, cudart, 1) for release, path in further.items()]
    wanted = arguments.releases.split(",") if arguments.releases else None
    return [placing for placing in placings if not wanted or placing.release in wanted]


def show_timing(arguments: argparse.Namespace) -> bool:
    """What GPU timing costs and is worth; --piece says which part of it."""
    fine, rows = True, list[list[object]]()
    with mps():
        for placing in timing_placings(arguments):
            if arguments.piece == "accuracy":
                results = timing_accuracy.accuracy(placing)
                rows += timing_accuracy.rows_of(placing, results)
                large = [a for a in results if a.size_bytes >= 1 << 16 and not a.is_bound]
                fine &= all(abs(a.median_error) <= 0.05 for a in large)
                fine &= sum(a.total_in_interval for a in results) >= 0.95 * len(results)
            elif arguments.piece == "events":
                rows += sampled_rows(placing, list(sampled_accuracy(placing)))
            elif arguments.piece == "training":
                more, right = timing_pairs.training(
                    placing, arguments.results, arguments.minutes, arguments.jobs.split(",")
                )
                rows, fine = rows + more, fine and right
            elif arguments.piece in ("pairs", "copies"):
                measure = timing_pairs.pairs if arguments.piece == "pairs" else timing_pairs.copies
                more, right = measure(placing, arguments.results, arguments.minutes)
                rows, fine = rows + more, fine and right
            else:
                more, right = timing.graphs(placing)
                rows, fine = rows + more, fine and right
            print(rows[-1:], file=sys.stderr, flush=True)
    header = {
        "pairs": timing_pairs.HEADER,
        "copies": timing_pairs.COPIES_HEADER,
        "accuracy": timing_accuracy.HEADER,
        "events": SAMPLED_HEADER,
        "training": timing_pairs.TRAINING_HEADER,
    }
    print(table(header.get(arguments.piece, timing.GRAPHS_HEADER), rows))
    return fine


# Coverage kills ranks in the midst of kernels: it comes last.
PARTS = {
    "torchrun": show_torchrun,
    "accuracy": show_accuracy,
    "overhead": show_overhead,
    "timing": show_timing,
    "bench": show_bench,
    "ctl": show_ctl,
    "diagnose": show_diagnose,
    "system": show_system,
    "coverage": show_coverage,
}


def main() -> int:
    """Runs what was asked for and publishes it."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--nccl", type=Path, metavar="DIR")
    parser.add_argument("--releases", help="coverage: only these, comma-separated")
    parser.add_argument("--worlds", default="2,4", help="coverage, bench: numbers of ranks (2,4)")
    every = ",".join((*CASES, *FATAL_CASES))
    parser.add_argument("--cases", default=every, help=f"coverage: of {every}")
    ways = ",".join(WAYS)
    parser.add_argument("--ways", default=ways, help=f"bench: how calls are made ({ways})")
    pieces = ("copies", "pairs", "accuracy", "events", "graphs", "training")
    parser.add_argument("--piece", choices=pieces, default="copies", help="timing: which part")
    jobs = ",".join(timing_pairs.JOBS)
    parser.add_argument("--jobs", default=jobs, help=f"timing --piece training: of {jobs}")
    parser.add_argument("--minutes", type=float, default=7, help="timing: of each placing")
    parser.add_argument(
        "--results", type=Path, default=Path(".bench/timing"), help="timing: lines are added there"
    )
    arguments = parser.parse_args()
    fine = True
    for name in arguments.parts or PARTS:
        fine &= PARTS[name](arguments)
    return 0 if fine else 1


sys.exit(main())
