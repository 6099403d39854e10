"""`ncclscope run` in front of PyTorch's own launcher: one capture, every call of every rank."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ncclscope.capture.dump_events import events_of
from ncclscope.capture.reader import open_capture, resolve_capture

JOB = Path(__file__).with_name("torch_job.py")


def torchrun(ranks: int = 2) -> tuple[list[list[object]], bool]:
    """Rows by rank and function: calls made, calls on record; and whether they agree."""
    with tempfile.TemporaryDirectory() as directory:
        capture = f"{directory}/capture"
        command = [sys.executable, "-m", "ncclscope", "run", "-o", capture, "--"]
        command += [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
        job = subprocess.run(
            [*command, str(JOB)], capture_output=True, text=True, env=dict(os.environ), check=False
        )
        print(job.stderr[-3000:], file=sys.stderr)
        answers = [json.loads(line) for line in job.stdout.splitlines() if line.startswith("{")]
        if job.returncode != 0 or len(answers) != ranks:
            return [], False
        capture_read = open_capture(resolve_capture(capture))
        recorded = {
            process.rank: Counter(
                event["fields"]["func"]
                for event in events_of(process)
                if event["event"] in ("CollApi", "P2pApi")
            )
            for process in capture_read.processes
        }
    rows: list[list[object]] = [
        [answer["rank"], function, made, recorded[answer["rank"]][function]]
        for answer in sorted(answers, key=lambda answer: int(answer["rank"]))
        for function, made in answer["calls"].items()
    ]
    return rows, all(made == on_record for _, _, made, on_record in rows)
