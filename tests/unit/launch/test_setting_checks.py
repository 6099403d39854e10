"""Options and variables that the recorder would ignore are refused before the job starts."""

import re
from pathlib import Path
from typing import Any

import pytest

from ncclscope.errors import UsageError
from ncclscope.launch.environment import Settings
from ncclscope.launch.setting_checks import check_settings, check_variables
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    "wrong",
    [
        {"ring": "64X"}, {"ring": ""}, {"arena": "foo"}, {"arena": "-1M"}, {"arena": "1e20"},
        {"disk_limit": "4 G"}, {"events": "0x"}, {"events": "0x1ffff"}, {"events": "all"},
        {"chain": ""}, {"ring": "64M", "mode": "profile"},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        check_settings(Settings(Path("/c"), **wrong))


@pytest.mark.parametrize(
    "right",
    [
        {"ring": "64M"}, {"arena": "1.5G"}, {"arena": "0"}, {"disk_limit": "4g"}, {"events": "0"},
        {"events": "0xFFFF"}, {"events": "255"}, {"chain": "inspector"},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_recorder_understands_is_accepted(right: dict[str, Any]) -> None:
    check_settings(Settings(Path("/c"), **right))


def test_wrong_variables_are_refused_and_named() -> None:
    for name, value, hint in (
        ("NCCLSCOPE_RNG", "64M", "Did you mean NCCLSCOPE_RING"),
        ("NCCLSCOPE_MODE", "fuller", "one of profile, trace, full"),
        ("NCCLSCOPE_EXIT_WAIT", "soon", "seconds"),
        ("NCCLSCOPE_GPU_TIMING", "maybe", "one of auto"),
    ):
        with pytest.raises(UsageError, match=rf"{name}.*{hint}"):
            check_variables({name: value})
    check_variables({"NCCLSCOPE_RING": "", "NCCLSCOPE_SIM_ID": "1", "NCCL_DEBUG": "INFO"})


def test_every_variable_of_the_documentation_is_known() -> None:
    page = (ROOT / "docs/environment.md").read_text()
    for name in set(re.findall(r"NCCLSCOPE_[A-Z_]*[A-Z]", page)):
        with pytest.raises(UsageError, match="there is no variable"):
            check_variables({f"{name}_X": "1"})
        try:
            check_variables({name: "0"})
        except UsageError as error:
            assert "there is no variable" not in str(error)
