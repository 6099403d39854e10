"""The simulated NCCL calls the plugin as real ones did: held against the transcripts.

Compared event by event: what the caller's thread and replays report, with all fields, parents,
threads; below that, per operation, kernels by channel and network transfers with their steps and
states; and which kernel events carry stamps of an earlier work. Addresses and handles count as the
same where they appear in the same places. Not compared, because not simulated (docs/simulation.md):
times, ProxyCtrl's number and idle states, repeated SendPeerWait, steps that NCCL 2.26 never stops,
and with more than two ranks what NCCL chooses (algorithm, protocol, channels, proxies).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ncclscope.nccl.events import EVENTS
from ncclscope.simulation.nccl import SimulatedNccl
from tests.support.paths import C_SOURCES, ROOT, SUPPORT
from tests.support.player import read_transcript, transcript_files

Line = dict[str, Any]
POINTERS = ("send", "recv", "buff", "stream")
CHOSEN = ("nch", "nmaxch", "nwarps", "algo", "proto")
ABOVE = ("Group", "Coll", "P2p", "GroupApi", "CollApi", "P2pApi", "KernelLaunch")


@dataclass(frozen=True)
class Job:
    """A recorded job, and how the simulation is asked for the same."""

    release: str
    ranks: int
    iterations: int
    cases: str
    one_host: bool = False


ALL = "colls group p2p a2a graph split one"
JOBS = {
    "2.26.5-v3-2ranks": Job("2.26", 2, 3, ALL.replace(" a2a", "")),
    "2.27.7-v4-2ranks": Job("2.27", 2, 3, ALL.replace(" a2a", "")),
    "2.28.9-v5-2ranks": Job("2.28", 2, 3, ALL),
    "2.28.9-v5-4ranks": Job("2.28", 4, 2, "colls group p2p a2a"),
    "2.30.7-v6-2ranks": Job("2.30", 2, 3, ALL),
    "2.31.2-v7-2ranks": Job("2.31", 2, 3, "colls group p2p a2a graph"),
    "2.32.3-v7-2ranks-one-host": Job("2.32", 2, 3, ALL, one_host=True),
}


def compiled(directory: Path, newest: int = 7) -> Path:
    """The plugin that writes transcripts, with interfaces up to `newest`."""
    library = directory / "libnccl-profiler-transcribing.so"
    sources = ROOT / "native" / "src"
    command = ["gcc", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", sources]
    source = C_SOURCES / "transcribing_plugin.c"
    subprocess.run([*command, f"-DNEWEST={newest}", "-o", library, source, "-lpthread"], check=True)
    return library


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("plugin"))


def start_ranks(
    job: Job, plugin: Path | str, tmp_path: Path, **variables: str
) -> list[subprocess.Popen[bytes]]:
    """The processes of a simulated job."""
    base = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}
    shared = base | {
        "NCCL_PROFILER_PLUGIN": str(plugin),
        "NCCLSCOPE_SIM_RELEASE": job.release,
        "TRANSCRIPT_FILE": str(tmp_path / "transcript"),
        "WORLD_SIZE": str(job.ranks),
        "ID": SimulatedNccl().unique_id().hex(),
        **({"NCCL_MAX_NCHANNELS": "64"} if job.one_host else {}),
        **variables,
    }
    workload = SUPPORT / "simulated_workload.py"
    command = [sys.executable, workload, str(job.iterations), *job.cases.split()]
    ranks = []
    for rank in range(job.ranks):
        host = {} if job.one_host else {"NCCL_HOSTID": f"host{rank}"}
        ranks.append(subprocess.Popen(command, env=shared | host | {"RANK": str(rank)}))
    return ranks


def transcripts(job: Job, tmp_path: Path) -> list[list[Line]]:
    """What the ranks' plugins wrote down."""
    texts = [(tmp_path / f"transcript.{rank}").read_text() for rank in range(job.ranks)]
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


def simulate(job: Job, plugin: Path | str, tmp_path: Path, **variables: str) -> list[list[Line]]:
    """The transcripts of a simulated job, by rank."""
    ranks = start_ranks(job, plugin, tmp_path, **variables)
    try:
        codes = [rank.wait(60) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0] * job.ranks
    return transcripts(job, tmp_path)


class Seen:
    """A transcript with names for its events, and numbers in place of handles and addresses."""

    def __init__(self, lines: list[Line], ignored: tuple[str, ...] = ()) -> None:
        self.lines, self._ignored = lines, ignored
        self.version = lines[0]["v"]
        self.starts = {line["h"]: line for line in lines if line["cb"] == "start"}
        self.kinds = {h: EVENTS[line["type"].bit_length() - 1] for h, line in self.starts.items()}
        self.children: dict[tuple[int, str], list[int]] = {}
        self.after: dict[int, list[Line]] = {h: [] for h in self.starts}
        for line in lines:
            if line["cb"] == "start":
                key = line["p"], self.kinds[line["h"]]
                self.children.setdefault(key, []).append(line["h"])
            elif line["cb"] in ("state", "stop"):
                self.after[line["h"]].append(line)

    def works(self) -> list[int]:
        """Handles of Coll and P2p, in order."""
        return [h for h, kind in self.kinds.items() if kind in ("Coll", "P2p")]

    def _fields(self, line: Line, places: dict[str, dict[str, int]]) -> Line:
        out = {}
        for key, value in line.items():
            if key in ("cb", "t", "tid", "h", "p", "group", "comm", "name", *self._ignored):
                continue
            if key in POINTERS:
                known = places.setdefault("stream" if key == "stream" else "memory", {})
                value = known.setdefault(value, len(known))
            out[key] = value
        return out

    def above(self) -> Iterator[tuple[Any, ...]]:
        """What is reported above kernels and proxies: callback, thread, event, parents, fields."""
        app = self.lines[0]["tid"]
        number: dict[int, int] = {0: 0}
        places: dict[str, dict[str, int]] = {}
        for line in self.lines:
            kind = self.kinds.get(line.get("h", 0), line["cb"])
            if kind not in (*ABOVE, "init", "finalize"):
                continue
            on_app_thread = line["tid"] == app
            if line["cb"] == "start":
                number[line["h"]] = len(number)
                parents = number[line["p"]], number[line.get("group", 0)]
                yield "start", kind, on_app_thread, parents, self._fields(line, places)
            elif line["cb"] in ("state", "stop"):
                yield line["cb"], number[line["h"]], on_app_thread, line.get("s")
            else:
                yield line["cb"], self._fields(line, places)

    def kernels(self, work: int) -> list[tuple[Any, ...]]:
        """Channels, states, phases, in order of channels."""
        found = []
        for handle in self.children.get((work, "KernelCh"), []):
            phases = [
                self.starts[h]["phname"] for h in self.children.get((handle, "KernelPhase"), [])
            ]
            states = [line.get("s", "stop") for line in self.after[handle]]
            found.append((self.starts[handle]["ch"], self.starts[handle]["rank"], states, phases))
        return sorted(found)

    def transfers(self, work: int) -> list[Any]:
        """Proxy operations with their steps: fields, order of states, and sizes."""
        found = []
        for handle in self.children.get((work, "ProxyOp"), []):
            start, own = self.starts[handle], self.lines[0]["tid"]
            states = [line.get("s", "stop") for line in self.after[handle]]
            steps = [
                (
                    self.starts[h]["step"],
                    self.starts[h]["rank"],
                    # Until 2.26 a step that was to be stopped may not be.
                    [
                        line["s"]
                        for line in self.after[h]
                        if line["cb"] == "state" and line["s"] != 20
                    ],
                )
                for h in self.children.get((handle, "ProxyStep"), [])
            ]
            fields = [start[k] for k in ("ch", "peer", "nsteps", "chunk", "send", "rank")]
            found.append((fields, start["pid"] == own, sorted(map(str, states)), steps))
        # Until 2.26 they are started when they first get on.
        return sorted(found) if self.version <= 3 else found

    def pollers(self) -> tuple[bool, bool]:
        """Whether kernels have a thread of their own; whether proxies are off the app's thread."""
        app = self.lines[0]["tid"]
        tids: dict[str, set[int]] = {"KernelCh": set(), "ProxyOp": set()}
        for h, kind in self.kinds.items():
            if kind in tids:
                tids[kind].add(self.starts[h]["tid"])
        return not tids["KernelCh"] & tids["ProxyOp"], app not in tids["KernelCh"] | tids["ProxyOp"]

    def stale(self) -> list[tuple[int, int]]:
        """Kernel events whose stamps are of an earlier work: (work, channel), works counted."""
        stops = {h: [x for x in self.after[h] if x.get("s") == 22] for h in self.starts}
        latest = max(x["a"] - x["t"] for found in stops.values() for x in found)
        found, launched = [], 0
        for place, work in enumerate(self.works()):
            replayed = self.starts[work]["tid"] != self.lines[0]["tid"]
            for line in self.lines:
                if line["cb"] == "start" and self.kinds[line["h"]] == "KernelLaunch":
                    if line["h"] > work:
                        break
                    launched = line["t"]
            begun = self.starts[work]["t"] if replayed else launched
            for handle in self.children.get((work, "KernelCh"), []):
                if self.starts[handle]["ptimer"] - latest < begun:
                    found.append((place, self.starts[handle]["ch"]))
        return found


@pytest.fixture(scope="module", params=JOBS)
def pairs(
    request: pytest.FixtureRequest, plugin: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Job, Seen, Seen]]:
    """Of each rank: the job, what was recorded, what is simulated."""
    job = JOBS[request.param]
    ignored = CHOSEN if job.ranks > 2 else ()
    real = [Seen(read_transcript(file), ignored) for file in transcript_files(request.param)]
    lines = simulate(job, plugin, tmp_path_factory.mktemp("job"))
    return [(job, r, Seen(s, ignored)) for r, s in zip(real, lines, strict=True)]


def test_what_is_reported_above(pairs: list[tuple[Job, Seen, Seen]]) -> None:
    for _, real, simulated in pairs:
        expected, found = list(real.above()), list(simulated.above())
        for place, (one, other) in enumerate(zip(expected, found, strict=False)):
            assert one == other, f"callback {place}"
        assert len(expected) == len(found)


def test_kernels(pairs: list[tuple[Job, Seen, Seen]]) -> None:
    """By work and channel. From 2.31 on the last ones may be thrown away."""
    for job, real, simulated in pairs:
        works = list(zip(real.works(), simulated.works(), strict=True))
        if job.release in ("2.31", "2.32"):
            works = works[:-1]
        for place, (one, other) in enumerate(works):
            expected, found = real.kernels(one), simulated.kernels(other)
            if job.ranks > 2:
                assert bool(expected) == bool(found), f"work {place}"
            else:
                assert expected == found, f"work {place}"


def test_network_transfers(pairs: list[tuple[Job, Seen, Seen]]) -> None:
    for job, real, simulated in pairs:
        for place, (one, other) in enumerate(zip(real.works(), simulated.works(), strict=True)):
            expected, found = real.transfers(one), simulated.transfers(other)
            if job.ranks > 2:
                assert bool(expected) == bool(found), f"work {place}"
            else:
                assert expected == found, f"work {place}"


def test_threads(pairs: list[tuple[Job, Seen, Seen]]) -> None:
    for _, real, simulated in pairs:
        assert real.pollers() == simulated.pollers()


def test_proxy_control(pairs: list[tuple[Job, Seen, Seen]]) -> None:
    """Sleeping, waking and appending have the same states; how often they come is not simulated."""
    for job, real, simulated in pairs:
        shapes = []
        for seen in (real, simulated):
            events = [h for h, kind in seen.kinds.items() if kind == "ProxyCtrl"]
            shapes.append({tuple(line.get("s") for line in seen.after[h]) for h in events})
        assert shapes[1] <= shapes[0] | {(15,)}  # asleep when the process ended
        assert bool(shapes[1]) == (not job.one_host)


def test_stamps_of_earlier_works(pairs: list[tuple[Job, Seen, Seen]]) -> None:
    """Send-to-self up to 2.30, Broadcasts from 2.31 on: the same kernel events are wrong."""
    for job, real, simulated in pairs:
        if job.release in ("2.26", "2.27") or job.ranks > 2:
            continue  # no stamps; none of the calls that cause it; other channels
        last = len(real.works()) - 1 if job.release in ("2.31", "2.32") else -1  # thrown away
        found = [one for one in simulated.stale() if one[0] != last]
        assert found == [one for one in real.stale() if one[0] != last]


def standing(seen: Seen) -> tuple[int, int, list[tuple[Any, ...]]]:
    """How far a rank is: works, kernels that run, network transfers that are not over.

    Of a transfer: direction, channel, step, its last state.
    """
    kernels = [h for h, kind in seen.kinds.items() if kind == "KernelCh" and not seen.after[h]]
    found = []
    for handle, line in seen.starts.items():
        states = [one.get("s") for one in seen.after[handle]]
        if seen.kinds[handle] == "ProxyStep" and None not in states:
            op = seen.starts[line["p"]]
            found.append((op["send"], op["ch"], line["step"], states[-1] if states else None))
    return len(seen.works()), len(kernels), sorted(found, key=str)


def test_a_hang_leaves_the_same_open(plugin: Path, tmp_path: Path) -> None:
    """Rank 2 never comes: how far the data got tells who is missing."""
    job = Job("2.28", 3, 5, "hang")
    real = [Seen(read_transcript(f)) for f in transcript_files("2.28.9-v5-3ranks-hang")]
    ranks = start_ranks(job, plugin, tmp_path)
    try:
        for _ in range(600):
            time.sleep(0.1)
            written = [tmp_path / f"transcript.{rank}" for rank in range(3)]
            if not all(path.exists() for path in written):
                continue
            seen = [Seen(lines) for lines in transcripts(job, tmp_path)]
            if [standing(one) for one in seen] == [standing(one) for one in real]:
                break
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for one, other in zip(real, transcripts(job, tmp_path), strict=True):
        assert standing(one) == standing(Seen(other))


@pytest.mark.parametrize(
    ("release", "newest", "taken"),
    [
        ("2.26", 7, 3),
        ("2.27", 7, 4),
        ("2.30", 5, 5),
        ("2.32", 6, 6),
        ("2.28", 4, 4),
        ("2.32", 3, 3),
    ],
)
def test_newest_interface_of_both(release: str, newest: int, taken: int, tmp_path: Path) -> None:
    """A release takes the newest interface that it and the plugin have; older ones get less."""
    job = Job(release, 1, 1, "self")
    (lines,) = simulate(job, compiled(tmp_path, newest), tmp_path)
    assert lines[0]["v"] == taken
    types = {line["type"] for line in lines if line["cb"] == "start"}
    api = {1 << bit for bit in range(8, 12)}
    assert bool(types & api) == (taken >= 5)
    seen = Seen(lines)
    (send,) = [h for h in seen.works() if seen.starts[h]["func"] == "Send"]
    parent = seen.kinds[seen.starts[send]["p"]]
    assert parent == ("P2pApi" if taken >= 5 else "Group")


def test_names_of_plugins(plugin: Path, tmp_path: Path) -> None:
    """As NCCL finds them: by a short name in the library path; `none` is nobody."""
    job, path = Job("2.28", 1, 1, "self"), str(plugin.parent)
    (lines,) = simulate(job, "transcribing", tmp_path, LD_LIBRARY_PATH=path)
    assert lines[0]["cb"] == "init"
    (tmp_path / "transcript.0").unlink()
    for name in ("none", "/nowhere/plugin.so"):
        assert [rank.wait(60) for rank in start_ranks(job, name, tmp_path)] == [0]
        assert not (tmp_path / "transcript.0").exists()


def test_a_dead_peer_is_noticed_over_a_network(plugin: Path, tmp_path: Path) -> None:
    ranks = start_ranks(Job("2.28", 3, 1, "death"), plugin, tmp_path)
    try:
        assert [rank.wait(60) for rank in ranks] == [0, 0, -9]
    finally:
        for rank in ranks:
            rank.kill()
