"""Builds the sdist, and wheels for both architectures that run on glibc 2.17 and later.

zig's C compiler (PyPI: ziglang) links against any glibc release and cross-compiles.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
GLIBC = (2, 17)


def compiler(directory: Path, arch: str) -> Path:
    """A C compiler for that architecture and our oldest glibc."""
    target = f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    script = directory / f"cc-{arch}"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang cc -target {target} "$@"\n')
    script.chmod(0o755)
    return script


def newest_glibc(library: bytes) -> tuple[int, int]:
    """The newest glibc release that a library asks for."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library)
    return max((int(major), int(minor)) for major, minor in found)


def build_wheel(arch: str, scratch: Path, tree: Path) -> Path:
    """One wheel, checked and named after the oldest system it runs on."""
    shutil.rmtree(tree / "build" / "wheel", ignore_errors=True)  # CMake remembers its compiler
    env = os.environ | {
        "CC": str(compiler(scratch, arch)),
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
    }
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", scratch / arch, tree]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = (scratch / arch).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".so") and newest_glibc(archive.read(name)) > GLIBC:
                raise SystemExit(f"{wheel.name}: {name} needs a newer glibc than {GLIBC}")
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"
    subprocess.run(
        [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel],
        check=True,
    )
    (renamed,) = (scratch / arch).glob("*.whl")
    return Path(shutil.copy(renamed, DIST))


def build_all(tree: Path) -> list[Path]:
    """Builds a tree's sdist and wheels into dist/; the wheels."""
    DIST.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--outdir", DIST, tree],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with tempfile.TemporaryDirectory() as scratch:
        return [build_wheel(arch, Path(scratch), tree) for arch in ("x86_64", "aarch64")]


def main() -> None:
    """Builds everything into dist/."""
    packages = ["build", "wheel", "ziglang"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *packages], check=True)
    print(*build_all(ROOT), sep="\n")


if __name__ == "__main__":
    main()
