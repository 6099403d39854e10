"""`ncclscope serve` calls hooks about running jobs."""

import json
import os
import signal
import sys
from pathlib import Path

from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.metrics_server import fetch, serving
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

JOB = Scenario(
    name="hooked",
    ranks=4,
    steps=100_000,
    compute_ms=5,
    communicators=(Communicators("world"),),
    calls=(Call("world", "AllReduce", 1 << 20),),
    late=(Late(2, 20),),
)


def test_a_late_rank_and_a_dead_one_are_reported_while_scrapes_go_on(tmp_path: Path) -> None:
    capture, script = tmp_path / "capture", tmp_path / "receive.py"
    script.write_text(
        "import json, pathlib, sys\n"
        "event = json.load(sys.stdin)\n"
        "file = pathlib.Path(sys.argv[1], event['event'])\n"
        "file.with_suffix('.part').write_text(json.dumps(event))\n"
        "file.with_suffix('.part').rename(file)\n"
    )
    command = f"{sys.executable} {script} {tmp_path}"
    options = ("--on-hang", command, "--on-straggler", command, "--straggler-after", "1")
    with running(JOB, capture, "--mode", "profile", "--gpu-timing", "kernel"):
        eventually(lambda: len(list(capture.glob("*/tally"))) == 4)
        with serving(capture, *options) as url:
            eventually(lambda: (tmp_path / "straggler").exists())
            late = json.loads((tmp_path / "straggler").read_text())
            assert (late["ranks"], late["communicator"]) == ([2], "world")
            assert not (tmp_path / "hang").exists()
            folder = next(path.parent for path in capture.glob("*/tally"))
            victim = int(folder.name.split(".")[-2])
            os.kill(victim, signal.SIGKILL)
            eventually(lambda: (tmp_path / "hang").exists())
            hang = json.loads((tmp_path / "hang").read_text())
            assert hang["run"] == late["run"]
            assert len(hang["ranks"]) == 1
            assert hang["simulation"]
            assert fetch(f"{url}/metrics")[0] == 200
