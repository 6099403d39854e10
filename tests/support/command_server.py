"""Runs the command line in forks of a process that has imported it already.

A command takes half a second to import numpy, DuckDB and the package, and a tenth to do its work.
Tests start many hundred commands. This process imports everything once and forks for each of them,
so that a command still has a process of its own. Started as a program, it reads one request a line:
JSON with the words, directory, environment and files for the output, and answers with the exit code
and the CPU time of all commands so far.
"""

import gc
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_MAIN = Path(__file__).parents[2] / "src" / "ncclscope" / "__main__.py"


class CommandServer:
    """The server as a test process uses it; it ends with the test process."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of CPU time, of all commands
        self._environment = _fixed_variables(os.environ)
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether a new process would import the same modules from the same places."""
        return self._process.poll() is None and _fixed_variables(environment) == self._environment

    def run(
        self, words: list[str], cwd: str | None, timeout: float, environment: Mapping[str, str]
    ) -> Any:
        """A command in an environment, as `subprocess.run` gives it back."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / "out", Path(folder) / "err"]
            code = self._ask(words, cwd, timeout, environment, files)
            out, err = (path.read_text() for path in files)
        if code == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(words, timeout, out, err)
        return subprocess.CompletedProcess(words, code, out, err)

    def run_on_terminal(self, words: list[str], environment: Mapping[str, str]) -> str:
        """What a terminal gets of a command."""
        reader, terminal = os.openpty()
        shown = bytearray()

        def read() -> None:
            with suppress(OSError):  # when nobody has it open any more
                while data := os.read(reader, 1 << 16):
                    shown.extend(data)

        thread = threading.Thread(target=read)
        thread.start()
        self._ask(words, None, 120, environment, [Path(os.ttyname(terminal))] * 2)
        os.close(terminal)
        thread.join()
        os.close(reader)
        return shown.decode()

    def _ask(
        self,
        words: list[str],
        cwd: str | None,
        timeout: float,
        environment: Mapping[str, str],
        files: list[Path],
    ) -> int:
        """The exit code of a command that writes into files."""
        request = {
            "words": words,
            "cwd": cwd or os.getcwd(),
            "environment": dict(environment),
            "files": [str(path) for path in files],
            "timeout": timeout,
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code, self.seconds = json.loads(self._process.stdout.readline())
        return int(code)


def _fixed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that Python and libraries read when they start."""
    prefixes = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG", "TZ", "OMP_", "OPENBLAS_")
    return {name: value for name, value in environment.items() if name.startswith(prefixes)}


def _command(request: dict[str, Any]) -> int:
    """In the fork: becomes the command."""
    from ncclscope.cli import main

    signal.alarm(math.ceil(request["timeout"]))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for place, path in enumerate(request["files"], 1):
        os.dup2(os.open(path, flags, 0o600), place)
    sys.argv = [str(_MAIN), *request["words"]]  # as `python -m ncclscope` has it
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _serve() -> None:
    from ncclscope import cli

    for verb in cli.COMMANDS:
        name = verb.replace("-", "_")
        importlib.import_module(f"ncclscope.cli.{'import_' if name == 'import' else name}")
    for module in (
        "numpy.ma",
        "numpy.random",
        "duckdb",
        "ncclscope.api",
        "ncclscope.diagnose.diagnosis",
    ):
        importlib.import_module(module)
    gc.freeze()  # else a fork's first collection copies the pages of all modules
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_command(request))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([code, sum(os.times()[:4])]), flush=True)
    gc.unfreeze()  # DuckDB complains of what stays


if __name__ == "__main__":
    _serve()
