"""Builds a release into dist/ and tries it: `make release`.

The tree is copied without what git ignores, and README's links are made absolute, because an index
shows that page alone. Then: metadata (twine), glibc (auditwheel), and the wheel of this machine in
a clean environment of every supported Python that is installed here.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import wheels
from tools.addresses import setting

ROOT = Path(__file__).parents[1]
_OLDEST, _NEWEST = 10, 14  # of Python 3


def readme_for_index(text: str, tag: str) -> str:
    """README with absolute links, to the files of a tag."""
    base = f"{setting('Repository')}/blob/{tag}"
    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({base}/\1)", text)


def version() -> str:
    """The version that is released."""
    namespace: dict[str, str] = {}
    exec((ROOT / "src" / "ncclscope" / "_version.py").read_text(), namespace)
    return namespace["__version__"]


def copy_tree(directory: Path) -> None:
    """Copies what git knows, or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    readme = directory / "README.md"
    readme.write_text(readme_for_index(readme.read_text(), f"v{version()}"))


def interpreters() -> list[str]:
    """The supported Pythons that are installed here, also pyenv's."""
    names = [f"python3.{minor}" for minor in range(_OLDEST, _NEWEST + 1)]
    versions = Path.home() / ".pyenv" / "versions"
    found = []
    for name in names:
        path = shutil.which(name)
        others = sorted(versions.glob(f"{name.removeprefix('python')}.*/bin/python3"))
        candidates = [*([path] if path else []), *map(str, others)]
        found += [candidate for candidate in candidates if _works(candidate)][:1]
    return found


def _works(python: str) -> bool:
    """Whether it starts: pyenv has shims for Pythons that are not chosen."""
    done = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
    return done.returncode == 0


def try_wheel(python: str, wheel: Path) -> str:
    """Installs a wheel into a clean environment, records and reports a job, opens it in Python."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "venv"
        subprocess.run([python, "-m", "venv", environment], check=True)
        own = environment / "bin" / "python"
        subprocess.run([own, "-m", "pip", "install", "-q", wheel], check=True)
        subprocess.run([own, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
        for words in (["demo", "-o", "job"], ["diagnose", "job"], ["dashboards", "-o", "d"]):
            subprocess.run(
                [environment / "bin" / "ncclscope", *words],
                cwd=scratch, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        code = (
            "import pathlib, platform, ncclscope\n"
            "from ncclscope.documentation import page\n"
            "assert pathlib.Path(page('verbs/run.md')).is_file()\n"
            "assert ncclscope.open('job').diagnose().findings\n"
            "print(platform.python_version())"
        )
        return subprocess.check_output([own, "-c", code], cwd=scratch, text=True).strip()


def main() -> None:
    """Builds and checks everything; ends with an error at the first thing that is wrong."""
    shutil.rmtree(wheels.DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        copy_tree(Path(scratch))
        built = wheels.build_all(Path(scratch))
    files = sorted(wheels.DIST.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    for wheel in built:
        # Plugin and player are no extension modules, so auditwheel only says what they need.
        subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], check=False)
    (own,) = [wheel for wheel in built if "x86_64" in wheel.name]
    for python in interpreters():
        print(f"works with Python {try_wheel(python, own)}", flush=True)
    print(f"its pages lead to {setting('Repository')} and {setting('Documentation')}")
    print(*files, sep="\n")


if __name__ == "__main__":
    main()
