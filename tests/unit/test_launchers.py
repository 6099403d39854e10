"""What launchers tell a process, from its environment and from what it recorded of it."""

import re

from ncclscope import launchers
from tests.support.paths import ROOT


def test_the_first_variable_that_is_a_number_counts() -> None:
    environment = {"RANK": "x", "SLURM_PROCID": "7", "OMPI_COMM_WORLD_RANK": "3"}
    assert launchers.global_rank(environment) == 7
    assert launchers.global_rank({}) is None
    assert launchers.local_rank({"SLURM_LOCALID": "2"}) == 2


def test_mpirun_knows_its_ranks_better_than_the_allocation() -> None:
    assert launchers.world_size({"SLURM_NTASKS": "16", "OMPI_COMM_WORLD_SIZE": "4"}) == 4
    assert launchers.world_size({"SLURM_NPROCS": "16"}) == 16
    assert launchers.world_size({}) == 0


def test_numbers_that_cannot_be_ranks_are_ignored() -> None:
    for text in ("", "-1", "1e3", "1234567890", "\u0663", "3 "):
        assert launchers.global_rank({"RANK": text}) is None


def test_recorded_variables_have_a_prefix() -> None:
    identity = {"env.RANK": "5", "RANK": "9", "env.WORLD_SIZE": "8"}
    assert launchers.global_rank(identity, launchers.RECORDED) == 5
    assert launchers.world_size(identity, launchers.RECORDED) == 8


def test_restarts_of_all_launchers_add_up() -> None:
    counts = {"TORCHELASTIC_RESTART_COUNT": "2", "SLURM_RESTART_COUNT": "1"}
    assert launchers.restarts(counts) == 3


def test_the_plugin_looks_at_the_same_variables_and_records_them() -> None:
    source = (ROOT / "native" / "src" / "identity.c").read_text()
    body = source.partition("identity_global_rank(void) {")[2].partition("}")[0]
    assert tuple(re.findall(r'"(\w+)"', body)) == launchers.RANK_VARIABLES
    config = (ROOT / "native" / "src" / "config.c").read_text()
    jobs = ", ".join(f'"{name}"' for name in launchers.JOB_VARIABLES)
    assert jobs in " ".join(config.split())
    recorded = set(re.findall(r'"([A-Z_a-z]+)"', source))
    for names in (
        launchers.JOB_VARIABLES, launchers.WORLD_SIZE_VARIABLES, launchers.LOCAL_RANK_VARIABLES,
        launchers.LOCAL_SIZE_VARIABLES, launchers.RESTART_VARIABLES,
    ):  # fmt: skip
        assert set(names) - recorded == set()
