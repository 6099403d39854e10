"""Launchers that do not pass their environment on to ranks: what their command line needs."""

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

_MPI_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun")


def is_open_mpi(program: str) -> bool:
    """Whether this launcher is Open MPI's, which passes on to other hosts only variables that -x
    names.
    """
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "Open MPI" in answer.stdout or "OpenRTE" in answer.stdout or "PRRTE" in answer.stdout


def _srun_export(arguments: Sequence[str], names: Iterable[str]) -> list[str]:
    """srun's arguments, with our variables in --export where the user limits that list."""
    added = ",".join(names)
    out: list[str] = []
    for argument in arguments:
        if argument == "--export=NONE" or argument == "--export=NIL":
            argument = f"--export={added}"
        elif argument.startswith("--export=") and argument != "--export=ALL":
            argument = f"{argument},{added}"
        out.append(argument)
    return out


def pass_on_variables(
    command: Sequence[str], names: Iterable[str], open_mpi: Callable[[str], bool] = is_open_mpi
) -> list[str]:
    """The command, changed where its launcher would not pass the named variables on to ranks."""
    program = PurePath(command[0]).name
    if program == "srun":
        return [command[0], *_srun_export(command[1:], names)]
    if program in _MPI_LAUNCHERS and open_mpi(command[0]):
        return [command[0], *(word for name in names for word in ("-x", name)), *command[1:]]
    return list(command)
