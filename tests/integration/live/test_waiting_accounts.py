"""The account of waiting of running jobs: real plugin, `serve`, and the process beside it."""

import re
import signal
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.metrics_server import fetch, serving
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

# A pipeline that goes round: nothing but sends and receives.
RING = Scenario(
    name="ring",
    ranks=8,
    steps=1_000_000,
    compute_ms=30,
    give_up_s=0,
    communicators=(Communicators("pp"),),
    calls=(Call("pp", "SendRecv", 1 << 18),) * 2,
)
MESH = replace(
    RING,
    communicators=(Communicators("tp", 2), Communicators("dp", 4, 2)),
    calls=(Call("tp", "AllReduce", 1 << 18), Call("dp", "AllReduce", 1 << 20)),
)
LATE = 5
QUICK = ("--all-hosts", "--interval", "0.2")  # a window every 6 s
Values = dict[str, dict[str, float]]  # by metric and the value of its last label


def waiting_of(url: str) -> Values:
    """What `serve` says about waiting now."""
    values: Values = defaultdict(dict)
    for line in fetch(f"{url}/metrics")[2].splitlines():
        found = re.match(
            r'ncclscope_(waiting_\w+)\{.*?(?:rank|origin|reason)="([^"]*)"\} (\S+)', line
        )
        if found:
            values[found[1]][found[2]] = float(found[3])
    return values


def covered_s(values: Values) -> float:
    """How much of the run the account covers."""
    return max(values["waiting_account_seconds_total"].values(), default=0.0)


def shares(values: Values) -> dict[str, float]:
    """By rank the share of the others' time that they waited because of it."""
    others_s = covered_s(values) * (RING.ranks - 1)
    return {rank: s / others_s for rank, s in values["waiting_caused_seconds_total"].items()}


@pytest.mark.parametrize("job", [RING, MESH], ids=["sends and receives", "mesh"])
def test_the_late_rank_shows_and_nobody_else(job: Scenario, tmp_path: Path) -> None:
    late = replace(job, late=(Late(LATE, 60.0),))
    began = time.time()
    with running(late, tmp_path / "c", "--mode", "trace"):
        eventually(lambda: len(list((tmp_path / "c").glob("*/tally"))) == job.ranks, 60)
        with serving(tmp_path / "c", *QUICK) as url:
            eventually(lambda: waiting_of(url)["waiting_account_seconds_total"], 60)
            first = waiting_of(url)
            assert len(first["waiting_caused_seconds_total"]) == job.ranks
            eventually(lambda: waiting_of(url)["waiting_account_made"] == {"": 1.0}, 120)
            first = waiting_of(url)
            eventually(lambda: covered_s(waiting_of(url)) > covered_s(first), 120)
            values = waiting_of(url)
    # No second counts twice, and counters only grow.
    assert covered_s(values) <= time.time() - began
    for metric in ("waiting_caused_seconds_total", "waiting_seconds_total"):
        assert all(values[metric][key] >= value for key, value in first[metric].items()), metric
    by_rank = shares(values)
    culprit = by_rank.pop(str(LATE))
    assert culprit > 0.1
    assert max(by_rank.values()) < culprit / 3
    assert sum(values["waiting_seconds_total"].values()) >= culprit


def test_without_events_or_with_a_dead_process_there_is_a_reason(tmp_path: Path) -> None:
    with running(MESH, tmp_path / "c", "--mode", "profile"):
        eventually(lambda: len(list((tmp_path / "c").glob("*/tally"))) == MESH.ranks, 60)
        with serving(tmp_path / "c", *QUICK) as url:
            no_log = {"mode profile keeps no log": 0.0}
            eventually(lambda: waiting_of(url)["waiting_account_made"] == no_log, 60)
            assert "waiting_caused_seconds_total" not in waiting_of(url)
            pid = re.search(r'rank_info\{.*?rank="3",pid="(\d+)"', fetch(f"{url}/metrics")[2])
            assert pid
            subprocess.run(["kill", f"-{signal.SIGKILL.value}", pid[1]], check=True)
            # As a launcher would, the simulation then kills the others.
            gone = [
                {f"{why}": 0.0} for why in ("not all processes are seen here", "no process runs")
            ]
            eventually(lambda: waiting_of(url)["waiting_account_made"] in gone, 60)


def test_after_damage_the_account_goes_on_and_does_not_cover_it(tmp_path: Path) -> None:
    with running(MESH, tmp_path / "c", "--mode", "trace"):
        eventually(lambda: len(list((tmp_path / "c").glob("*/log.*"))) >= MESH.ranks, 60)
        began = time.time()
        with serving(tmp_path / "c", *QUICK) as url:
            eventually(lambda: waiting_of(url)["waiting_account_made"] == {"": 1.0}, 120)
            first = waiting_of(url)
            time.sleep(5)  # so much is on disk, and lost; the recorder begins another file
            for log in (tmp_path / "c").glob("*/log.*"):
                log.write_bytes(b"\xff" * 100_000)
            damaged_s = time.time() - began
            eventually(lambda: covered_s(waiting_of(url)) > covered_s(first), 120)
            values = waiting_of(url)
            assert fetch(f"{url}/healthz")[0] == 200
    since_s = time.time() - began - damaged_s
    assert covered_s(values) - covered_s(first) <= since_s
    for rank, caused_s in first["waiting_caused_seconds_total"].items():
        assert values["waiting_caused_seconds_total"][rank] >= caused_s
