"""CPU time of callbacks, decoding and verbs against an older checkout, in one run and in turn.

`NCCLSCOPE_OLDER_CHECKOUT=DIR python -m benchmarks older_checkout`; the checkout has been built.
The older checkout writes the capture that both read: it refuses later formats, and refusing is
quick. Where valgrind is installed, instructions of callbacks are counted as well: these do not
depend on what else the machine does.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import callback_cost
from benchmarks.loads import scratch
from benchmarks.results import ROOT, publish, table
from ncclscope.native import empty_plugin_path

TURNS = 11
BAR = 1.03
PROCESSES, OPERATIONS = 8, 20_000
_VERB = "import sys; from ncclscope.cli import main; sys.exit(main())"
_WRITE = """
import sys
from pathlib import Path
try:
    from tests.support.writer import SyntheticSpec, synthetic
except ImportError:
    from tests.writer.synthetic import SyntheticSpec, synthetic
processes, operations = map(int, sys.argv[2:])
synthetic(Path(sys.argv[1]), SyntheticSpec(processes=processes, operations=operations, seed=1))
"""
# The second import of each pair is that of checkouts before November 2026.
_DECODE = """
import sys
from pathlib import Path
try:
    from ncclscope.capture.housekeeping import process_folders
    from ncclscope.model.process.decoded_process import decode_process
except ImportError:
    from ncclscope.capture.reader import process_folders
    from ncclscope.model.parts import decode_part as decode_process
for folder in process_folders(Path(sys.argv[1])):
    decode_process(folder)
"""
# name, what Python runs, its arguments, whether the saved model is removed before
READINGS: tuple[tuple[str, str, tuple[str, ...], bool], ...] = (
    ("decoding all processes", _DECODE, (), False),
    ("`report`, the first time", _VERB, ("report",), True),
    ("`report` again", _VERB, ("report",), False),
    ("`diagnose` with a saved model", _VERB, ("diagnose",), False),
    ("`status`", _VERB, ("status",), False),
)


def cpu_s(command: list[str]) -> float:
    """User and system time of a command and its children. It must read the whole capture."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode or "not read" in ended.stdout:
        raise SystemExit(f"{' '.join(command[3:])}: {ended.returncode} {ended.stdout[:500]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def readings(older: Path, directory: Path) -> list[tuple[str, float, float]]:
    """Name, least ms of the older checkout, least ms of this one."""
    trees = (older, ROOT)
    captures = [directory / "older", directory / "this"]
    command = [older / ".venv" / "bin" / "python", "-c", _WRITE, captures[0]]
    words = [str(word) for word in (*command, PROCESSES, OPERATIONS)]
    subprocess.run(words, cwd=older, check=True)
    shutil.copytree(captures[0], captures[1])
    rows = []
    for name, script, words, is_first in READINGS:
        least = [float("inf"), float("inf")]
        for turn in range(TURNS):
            for place in (0, 1) if turn % 2 else (1, 0):
                if is_first:
                    shutil.rmtree(captures[place] / "model", ignore_errors=True)
                python = str(trees[place] / ".venv" / "bin" / "python")
                command = [python, "-c", script, *words, str(captures[place])]
                least[place] = min(least[place], cpu_s(command))
        rows.append((name, 1e3 * least[0], 1e3 * least[1]))
    return rows


def callback_ns(driver: Path, plugin: Path, kind: str, collectives: int) -> float:
    """Least ns of thread CPU time that a callback of the plugin takes, in a process of its own."""
    command = [driver, 3, collectives, 16, 8, kind, (os.cpu_count() or 2) - 1, f"plugin={plugin}"]
    env = os.environ | {"NCCLSCOPE_MODE": "full", "NCCLSCOPE_DISK_LIMIT": "16G"}
    with tempfile.TemporaryDirectory(dir=driver.parent) as capture:
        printed = subprocess.run(
            [str(word) for word in command],
            env=env | {"NCCLSCOPE_DIR": capture},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    (words,) = [line.split() for line in printed.splitlines() if line.startswith("plugin")]
    return min(map(float, words[2:]))


def callbacks(older: Path, directory: Path) -> list[tuple[str, float, float]]:
    """Name, least ns of the older plugin, least ns of this one."""
    driver, _ = callback_cost.build(directory)
    name = "src/ncclscope/native/libnccl-profiler-ncclscope.so"
    rows = []
    for title, kind, collectives in callback_cost.REPLAYS:
        least = [float("inf"), float("inf")]
        for turn in range(TURNS):
            for place in (0, 1) if turn % 2 else (1, 0):
                plugin = (older, ROOT)[place] / name
                ns = callback_ns(driver, plugin, kind, collectives)
                least[place] = min(least[place], ns)
        rows.append((f"a callback: {title}", least[0], least[1]))
    return rows


def instructions(older: Path, directory: Path) -> list[tuple[str, float, float]]:
    """Name, instructions of a callback of the older plugin, of this one: those of the thread that
    calls, less those of the driver, which an empty plugin tells.
    """
    driver, _ = callback_cost.build(directory)
    name = "src/ncclscope/native/libnccl-profiler-ncclscope.so"

    def counted(plugin: Path, kind: str, collectives: int) -> int:
        capture = directory / "counted"
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
        command += [f"--callgrind-out-file={directory}/counts", driver, "1", str(collectives)]
        command += ["16", "8", kind, "0", f"plugin={plugin}"]
        env = os.environ | {"NCCLSCOPE_MODE": "full", "NCCLSCOPE_DIR": str(capture)}
        subprocess.run(command, env=env, capture_output=True, check=True)
        shutil.rmtree(capture, ignore_errors=True)
        lines = (directory / "counts-01").read_text().splitlines()
        (total,) = [line.split()[1] for line in lines if line.startswith("totals:")]
        return int(total)

    def of_a_collective(plugin: Path, kind: str) -> float:
        return (counted(plugin, kind, 120) - counted(plugin, kind, 20)) / 100

    rows = []
    for title, kind, _ in callback_cost.REPLAYS:
        calls = int(title.split()[-2])
        empty = of_a_collective(empty_plugin_path(), kind)
        both = [of_a_collective(tree / name, kind) - empty for tree in (older, ROOT)]
        rows.append((f"instructions of a callback: {title}", both[0] / calls, both[1] / calls))
    return rows


def _rows(unit: str, measured: list[tuple[str, float, float]]) -> list[list[object]]:
    return [
        [name, f"{older:.1f} {unit}".strip(), f"{this:.1f} {unit}".strip(), f"{this / older:.3f}"]
        for name, older, this in measured
    ]


def main() -> None:
    """Measures both and says which is slower than the bar."""
    older = Path(os.environ.get("NCCLSCOPE_OLDER_CHECKOUT", ""))
    if older == Path():
        print("older_checkout: NCCLSCOPE_OLDER_CHECKOUT names no checkout: not measured")
        return
    log = ["git", "-C", str(older), "log", "-1", "--format=%h of %cs"]
    commit = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
    with scratch() as directory:
        by_unit = {"ns": callbacks(older, directory), "ms": readings(older, directory)}
        if shutil.which("valgrind"):
            by_unit[""] = instructions(older, directory)
    rows = [row for unit, measured in by_unit.items() for row in _rows(unit, measured)]
    note = (
        f"CPU time, the least of {TURNS} runs in turn. Older: commit {commit}. Readings: a "
        f"simulated capture of {PROCESSES} processes and {PROCESSES * OPERATIONS:,} operations; "
        f"whole commands, Python {sys.version.split()[0]}."
    )
    publish("older-checkout", table(["what", "older", "this", "ratio"], rows) + f"\n\n{note}")
    slower = [str(row[0]) for row in rows if float(str(row[3])) > BAR]
    if slower:
        raise SystemExit(f"more than {BAR} times as long: {', '.join(slower)}")
