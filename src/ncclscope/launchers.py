"""Variables of torchrun, Slurm, Open MPI and PMI, as Python reads them; the plugin has identity.c.

One list per fact; the first variable that holds a number counts. native/src/identity.c records
these variables of a process as `env.NAME`: pass RECORDED as the prefix to read them from a capture.
Standard library only: `run` needs it.
"""

from collections.abc import Iterable, Mapping

RECORDED = "env."  # before a variable's name in what a process recorded of itself

# The plugin looks at the same variables of these two lists in the same order.
JOB_VARIABLES = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
# Open MPI before Slurm: mpirun may start fewer ranks than the allocation has tasks.
WORLD_SIZE_VARIABLES = (
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "PMI_SIZE",
)  # fmt: skip
LOCAL_RANK_VARIABLES = (
    "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
)  # fmt: skip
LOCAL_SIZE_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
# Each launcher counts its own restarts, so these add up.
RESTART_VARIABLES = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_MOST_DIGITS = 9


def first_number(values: Mapping[str, str], names: Iterable[str], prefix: str = "") -> int | None:
    """The first of these values that is a number of at most nine digits; None where none is."""
    for name in names:
        text = values.get(prefix + name, "")
        if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
            return int(text)
    return None


def global_rank(values: Mapping[str, str], prefix: str = "") -> int | None:
    """The rank in the job that a launcher gave the process; None without a launcher."""
    return first_number(values, RANK_VARIABLES, prefix)


def world_size(values: Mapping[str, str], prefix: str = "") -> int:
    """Ranks of the job as its launcher says; 0 where it does not."""
    return first_number(values, WORLD_SIZE_VARIABLES, prefix) or 0


def local_rank(values: Mapping[str, str], prefix: str = "") -> int | None:
    """The rank on its host that a launcher gave the process; None without a launcher."""
    return first_number(values, LOCAL_RANK_VARIABLES, prefix)


def restarts(values: Mapping[str, str], prefix: str = "") -> int:
    """How often launchers had restarted the job before this process, as far as they say so."""
    return sum(first_number(values, (name,), prefix) or 0 for name in RESTART_VARIABLES)
