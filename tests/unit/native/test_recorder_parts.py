"""The recorder's parts in C by themselves: native/tests, run by ctest."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

BUILD = ROOT / "build" / "editable"


def test_c_unit_tests_pass() -> None:
    in_environment = Path(sys.executable).with_name("ctest")
    ctest = str(in_environment) if in_environment.exists() else shutil.which("ctest")
    assert ctest, "ctest comes with cmake, which the tests need"
    command = [ctest, "--test-dir", BUILD, "--output-on-failure", "--no-tests=error"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr


def test_every_test_in_c_is_registered() -> None:
    """CMake reads their names when it configures."""
    sources = (ROOT / "native" / "tests").glob("test_*.c")
    lines = [line for path in sources for line in path.read_text().splitlines()]
    written = sum(line.startswith("TEST(") for line in lines)
    registered = (BUILD / "CTestTestfile.cmake").read_text().count("\nadd_test(")
    assert registered == written
