"""ns per callback: ours and the prototype, both draining to disk, net of an empty plugin."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from ncclscope.capture.reader import open_capture
from ncclscope.native import empty_plugin_path, plugin_path

ROUNDS = 9
HERE = Path(__file__).parent
# name, replay, collectives a round: little enough to fit the arena, so that nothing is dropped
REPLAYS = (
    ("everything, 1440 callbacks", "deep", 1000),
    ("collectives, 58 callbacks", "coll", 20000),
)


def build(directory: Path) -> tuple[Path, Path]:
    """The driver and the prototype's plugin."""
    driver, prototype = directory / "callback_cost", directory / "prototype.so"
    common = ["gcc", "-O2", "-g", "-std=gnu11", "-w"]
    subprocess.run(
        [*common, "-o", driver, HERE / "callback_cost.c", "-ldl", "-lpthread"], check=True
    )
    shared = ["-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,nodelete"]
    subprocess.run(
        [*common, *shared, "-o", prototype, HERE / "prototype" / "recproto.c"], check=True
    )
    return driver, prototype


def replay(
    driver: Path, prototype: Path, kind: str, collectives: int, directory: Path
) -> dict[str, float]:
    """Best of the rounds by plugin, after checking that nothing was dropped."""
    capture, drained = directory / f"capture-{kind}", directory / f"prototype-{kind}"
    drained.mkdir()
    env = os.environ | {
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": "full",
        "NCCLSCOPE_DISK_LIMIT": "16G",
        "RP_DRAIN": str(drained),
        "RP_CHUNKS": "256",
        "RP_STATS": "1",
    }
    plugins = {"empty": empty_plugin_path(), "prototype": prototype, "ncclscope": plugin_path()}
    command = [driver, ROUNDS, collectives, 16, 8, kind, (os.cpu_count() or 2) - 1]
    command += [f"{name}={path}" for name, path in plugins.items()]
    ran = subprocess.run(
        [str(word) for word in command], env=env, capture_output=True, text=True, check=True
    )
    for path in Path("/dev/shm").glob("rp.*"):
        path.unlink()
    assert "dropped 0 (pending 0)" in ran.stderr, ran.stderr
    (process,) = open_capture(capture).processes
    assert process.dropped() == 0
    assert not [name for name, _ in process.counters if name in ("updates_dropped", "write_failed")]
    shutil.rmtree(capture)
    shutil.rmtree(drained)
    return {line.split()[0]: min(map(float, line.split()[2:])) for line in ran.stdout.splitlines()}


def main() -> None:
    """Measures both replays and holds them against the bars."""
    rows: list[list[object]] = []
    failures = []
    scratch = ROOT / ".bench"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        driver, prototype = build(Path(temporary))
        for title, kind, collectives in REPLAYS:
            best = replay(driver, prototype, kind, collectives, Path(temporary))
            net = {name: best[name] - best["empty"] for name in ("prototype", "ncclscope")}
            ratio = net["ncclscope"] / net["prototype"]
            over_clock = net["ncclscope"] - best["clock"]
            numbers = [best["empty"], best["clock"], net["prototype"], net["ncclscope"]]
            cells = [f"{number:.1f}" for number in numbers]
            rows.append([title, *cells, f"{ratio:.2f}", f"{over_clock:+.1f}"])
            if ratio > 1.25:
                failures.append(f"{title}: {ratio:.2f} times the prototype")
    header = [
        "replay",
        "empty plugin",
        "one clock read",
        "prototype, net",
        "ncclscope, net",
        "ratio",
        "over one clock read",
    ]
    note = (
        "ns a callback of thread CPU time, best of 9 interleaved rounds on one pinned core; net: "
        "less the empty plugin. Both recorders write every event to disk meanwhile; nothing was "
        "dropped."
    )
    publish("callback-cost", f"{table(header, rows)}\n\n{note}")
    if failures:
        raise SystemExit("; ".join(failures))
