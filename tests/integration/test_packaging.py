"""sdist and wheel: what is in them, and that an installed wheel works."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

BUILT = (
    "libnccl-profiler-ncclscope.so",
    "libncclscope-arrays.so",
    "libnccl-profiler-ncclscope-empty.so",
    "libncclscope-simulated-nccl.so",
    "libncclscope-fake-host.so",
    "ncclscope-player",
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist, and the wheel that is built from it. Editable installs are built in isolation. To
    optimise the wheel would take CPU and prove nothing more.
    """
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    command += ["-C", "cmake.define.CMAKE_C_FLAGS_RELEASE=-O0"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    return out


def test_sdist(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md"} <= names
    assert {
        "native/src/plugin.c",
        "native/include/ncclscope/format.h",
        "native/harness/player.c",
    } <= names
    assert not [
        name for name in names if name.endswith(".so") or name.startswith(("tests/", "build/"))
    ]


def test_wheel(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert "-py3-none-linux_" in wheel.name, "one wheel for all Pythons of a platform"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"ncclscope/native/{name}" for name in BUILT} <= names
    assert {"ncclscope/demo/rank0.jsonl.gz", "ncclscope/demo/rank1.jsonl.gz"} <= names
    assert "ncclscope/simulation/late_rank.toml" in names
    assert {"ncclscope/py.typed", "ncclscope/dashboards/ncclscope-rules.yml"} <= names
    assert any(name.endswith(".data/data/share/man/man1/ncclscope-report.1") for name in names)
    assert {"ncclscope/docs/verbs/run.md", "ncclscope/docs/guides/hang.md"} <= names  # of messages
    assert wheel.stat().st_size < 5_000_000
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "-q", "--no-deps", wheel], check=True)
    script = python.with_name("ncclscope")
    plugin = subprocess.check_output([script, "plugin-path"], text=True).strip()
    assert Path(plugin).is_relative_to(tmp_path / "venv")
    # run, env, plugin-path and demo need the standard library only.
    shown = subprocess.run(
        [script, "demo"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "dropped                0         0         0         0" in shown.stdout


def test_a_node_is_installed_as_the_page_says(dist: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy" / "README.md").read_text()
    script = page.partition("file=install.sh\n")[2].partition("```")[0]
    script = script.replace("/opt/ncclscope", str(tmp_path / "opt")).replace("dist/", f"{dist}/")
    env = os.environ | {"PIP_NO_DEPS": "1", "PATH": f"{Path(sys.executable).parent}:{os.defpath}"}
    subprocess.run(["sh", "-ec", script], env=env, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "opt" / "libnccl-profiler-ncclscope.so").is_file()
    assert (tmp_path / "opt" / "venv" / "bin" / "ncclscope").is_file()


def test_the_demo_installs_what_it_needs_and_tests_add_to_that(tmp_path: Path) -> None:
    def installed(target: str) -> list[str]:
        """What pip would be told to install into a new environment."""
        command = ["make", "--dry-run", "--no-print-directory", f"VENV={tmp_path}/venv", target]
        shown = subprocess.check_output(command, cwd=ROOT, text=True)
        return re.findall(
            r"pip install -q (?:--no-compile )?(-e .*?|--group .*?)(?: \|\| .*)?\n", shown
        )

    assert installed("demo") == ["-e ."]
    groups = ["--group test --group lint --group docs", "--group torch", "--group helm"]
    assert installed("test") == installed("lint") == ["-e .", *groups]
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    for stamp in ("bin/python", "package"):
        (tmp_path / "venv" / stamp).touch()
    assert installed("demo") == []
    assert installed("test") == groups
    (tmp_path / "venv" / "installed").touch()
    assert installed("demo") == installed("test") == []


def test_editable_install_loads_the_plugin_from_the_tree() -> None:
    printed = subprocess.check_output([sys.executable, "-m", "ncclscope", "plugin-path"], text=True)
    assert Path(printed.strip()) == ROOT / "src/ncclscope/native/libnccl-profiler-ncclscope.so"
