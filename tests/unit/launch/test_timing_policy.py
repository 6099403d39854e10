"""The GPU timing that is foretold is the one that the recorder chooses."""

import os
from pathlib import Path

import pytest

from ncclscope.capture.housekeeping import identity_of, process_folders
from ncclscope.launch.environment import Settings
from ncclscope.launch.timing_policy import expected_timing, settings_in, with_variables
from tests.support.player import player, recording

_JOBS = (
    {"NCCLSCOPE_MODE": "profile"},
    {"NCCLSCOPE_MODE": "trace"},
    {"NCCLSCOPE_MODE": "trace", "NCCLSCOPE_GPU_TIMING": "sampled"},
    {"NCCLSCOPE_MODE": "full", "NCCLSCOPE_GPU_TIMING": "sampled", "NCCLSCOPE_EVENTS": "0x42"},
    {"NCCLSCOPE_MODE": "profile", "NCCLSCOPE_GPU_TIMING": "1", "NCCLSCOPE_EVENTS": "0x2"},
)


@pytest.mark.parametrize("variables", _JOBS)
def test_the_recorder_chooses_the_timing_that_is_foretold(
    variables: dict[str, str], tmp_path: Path
) -> None:
    for interface in (2, 3, 4, 5):  # from 5 on, all are alike
        capture = tmp_path / f"v{interface}"
        env = recording(capture, "profile") | {"NCCLSCOPE_GPU_TIMING": "auto"} | variables
        options = ("load", "--version", interface, "--collectives", 1)
        assert player(*options, env=env).returncode == 0
        (folder,) = process_folders(capture)
        identity = identity_of(folder)
        expected = expected_timing(settings_in(variables), interface, "libcuda")
        found = (identity["gpu_timing.in_force"], identity.get("gpu_timing.reason", ""))
        assert (expected.in_force, expected.reason) == found, interface


def test_what_the_recorder_does_not_understand_counts_as_not_set() -> None:
    wrong = {"NCCLSCOPE_MODE": "fuller", "NCCLSCOPE_GPU_TIMING": "often", "NCCLSCOPE_EVENTS": "six"}
    assert settings_in(wrong) == settings_in({})
    assert expected_timing(settings_in(wrong), 7, "").in_force == "sampled"


def test_options_come_before_variables() -> None:
    variables = os.environ | {"NCCLSCOPE_GPU_TIMING": "0", "NCCLSCOPE_EVENTS": "0x2"}
    assert with_variables(Settings(Path("/x")), variables).gpu_timing == "off"
    assert with_variables(Settings(Path("/x"), gpu_timing="kernel"), variables).events == "0x2"
    assert (
        with_variables(Settings(Path("/x"), gpu_timing="kernel"), variables).gpu_timing == "kernel"
    )
