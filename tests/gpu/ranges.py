"""NVTX with real NCCL and PyTorch: `python -m tests.gpu.ranges [ROUNDS]`.

Two ranks share a GPU. Says by rank how many of the job's calls lie in the ranges that the job
pushed around them (the truth is what it pushes), what NCCL's own domain says about init and split,
and the median step with and without NVTX, interleaved.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, STOP_NS, key, number
from ncclscope.capture.process import Process
from ncclscope.capture.range_payloads import range_payloads
from ncclscope.capture.reader import open_capture
from ncclscope.model.process.events import events_of

JOB = Path(__file__).with_name("nvtx_job.py")
EXPECTED = {"AllGather": "forward", "AllReduce": "backward", "ReduceScatter": "backward"}


def run_job(capture: Path, *options: str) -> list[float]:
    """Runs the job recorded; the median step of each rank in us."""
    command = [sys.executable, "-m", "ncclscope", "run", "-q", "-o", str(capture), *options, "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(JOB)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or len(answers) != 2:
        raise SystemExit(ran.stderr[-4000:])
    return [float(answer["median_us"]) for answer in answers]


def calls_in_ranges(process: Process) -> tuple[int, int]:
    """Calls of the loop with the right phase and a step, and all calls of the loop."""
    events = events_of(process, ("Range", "CollApi"))
    ranges, calls = events["Range"], events["CollApi"]
    read = ranges.read(text=number("text"), start=START_NS, end=STOP_NS, parent=key("parent"))
    texts = [process.range_texts.get(one, "") for one in read["text"].tolist()]
    parents = ranges.find(read["parent"]).tolist()
    rows = list(
        zip(ranges.keys.tolist(), read["start"].tolist(), read["end"].tolist(), strict=True)
    )
    right = total = 0
    began = calls.one(START_NS).tolist()
    names = [process.strings.get(one, "") for one in calls.one(number("func")).tolist()]
    for call_key, start_ns, name in zip(calls.keys.tolist(), began, names, strict=True):
        around = [
            texts[at]
            for at, (range_key, first, last) in enumerate(rows)
            if range_key < call_key and first <= start_ns <= (last if last >= 0 else start_ns)
        ]
        if not any(text.startswith("step ") for text in around):
            continue
        total += 1
        right += around[-1] == EXPECTED.get(name) or EXPECTED.get(name) in around
    assert all(parent < at for at, parent in enumerate(parents))
    return right, total


def nccl_says(process: Process) -> list[str]:
    """Ranges of NCCL's own domain with their payloads."""
    ranges = events_of(process, ("Range",))["Range"]
    read = ranges.read(text=number("text"), domain=number("domain"), start=START_NS, end=STOP_NS)
    payloads = range_payloads(process)
    lines, counts = [], Counter[str]()
    for at, (text, domain) in enumerate(zip(read["text"], read["domain"], strict=True)):
        if process.range_domains.get(int(domain)) != "NCCL":
            continue
        name = process.range_texts.get(int(text), "")
        counts[name] += 1
        place = int(ranges.keys[at])
        log_key = place >> layout.INDEX_BITS << 48 | place & layout.INDEX_MASK
        took_ms = (int(read["end"][at]) - int(read["start"][at])) / 1e6
        if counts[name] <= 2:
            lines.append(f"{name} {took_ms:.2f} ms {payloads.get(log_key, {})}")
    communicators = [f"{comm.name or comm.number}={comm.id:x}" for comm in process.communicators]
    return [*lines, f"counts {dict(counts)}", f"communicators {communicators}"]


def main() -> None:
    """Prints what the ranges hold, and what they cost."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as scratch:
        ways: dict[str, list[float]] = {"plain": [], "nvtx": []}
        for turn in range(rounds):
            for way, options in (("plain", ()), ("nvtx", ("--nvtx",))):
                capture = Path(scratch) / f"{way}{turn}"
                ways[way].append(max(run_job(capture, "--no-torch", *options)))
        for process in open_capture(Path(scratch) / "nvtx0").processes:
            right, total = calls_in_ranges(process)
            print(f"rank {process.rank}: {right} of {total} calls in the right ranges")
            print(f"  dropped {process.counters.get(('dropped_ranges', 0), 0)}, {process.notes}")
            for line in nccl_says(process):
                print(f"  {line}")
    for way, values in ways.items():
        print(f"{way}: median step {statistics.median(values):.1f} us of {sorted(values)}")


if __name__ == "__main__":
    main()
