"""CPU time that `--help` of each verb takes, the whole command, as an installed package starts it.

On a quiet machine that is its wall time: it waits for nothing.
"""

import resource
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.loads import holds, scratch
from benchmarks.results import ROOT, publish, table
from ncclscope.cli import COMMANDS

ROUNDS = 20
BAR_MS = 60
_SCRIPT = "import sys; from ncclscope.cli import main; sys.exit(main())"


def installed(folder: Path) -> Path:
    """A Python that has the package as a wheel would install it, without a checkout's hooks."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "ncclscope.pth").write_text(f"{ROOT / 'src'}\n")
    return folder / "bin" / "python"


def least_ms(command: list[str | Path]) -> float:
    """The shortest of some runs: what it takes on a quiet machine."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return 1e3 * min(times)


def main() -> None:
    """Measures them, and ends with an error where one takes longer than the bar."""
    with scratch() as directory:
        python = installed(directory / "venv")
        bare = least_ms([python, "-c", "pass"])
        verbs = {"": least_ms([python, "-c", _SCRIPT, "--help"])}
        for verb in COMMANDS:
            verbs[verb] = least_ms([python, "-c", _SCRIPT, verb, "--help"])
    slowest = sorted(verbs, key=lambda verb: -verbs[verb])
    rows: list[list[object]] = [
        [f"`{' '.join(f'ncclscope {verb}'.split())} --help`", f"{verbs[verb]:.1f}"]
        for verb in slowest
    ]
    fine = max(verbs.values()) <= BAR_MS
    publish(
        "help-time",
        table(["command", "ms of CPU"], [["`python -c pass`", f"{bare:.1f}"], *rows])
        + f"\n\nShortest of {ROUNDS} runs each, Python {sys.version.split()[0]}. "
        f"Bar: {BAR_MS} ms: {holds(fine)}.",
    )
    if not fine:
        raise SystemExit(f"{slowest[0]} --help takes {verbs[slowest[0]]:.1f} ms")
