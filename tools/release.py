"""Builds a release into dist/ and tries it: `make release`.

The tree is copied without what git ignores, and README's links are made absolute, because an index
shows that page alone. Then: metadata (twine), glibc (auditwheel), and the wheel of this machine in
a clean environment of every supported Python that is installed here.

A release names its repository: without `--placeholder-addresses` none is built while the address in
pyproject.toml is the made-up one. `--tag` and `--repository` are what the forge's workflow knows;
they must be those of the tree.

`--root DIR` names another Linux system below a directory, as debootstrap makes one; its Pythons are
tried, too, in a chroot. That needs root. `--publish` writes the result into docs/measurements,
`--no-build` takes what is in dist/.
"""

import argparse
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import publish, table
from tools import addresses, wheels
from tools.addresses import setting

ROOT = Path(__file__).parents[1]
_OLDEST, _NEWEST = 10, 14  # of Python 3


def readme_for_index(text: str, tag: str) -> str:
    """README with absolute links to the files of a tag; those of pictures to the pictures."""
    repository = setting("Repository")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)([^)\s]+)\)", rf"\1{repository}/raw/{tag}/\2)", text)
    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({repository}/blob/{tag}/\1)", text)


def version() -> str:
    """The version that is released."""
    namespace: dict[str, str] = {}
    exec((ROOT / "src" / "ncclscope" / "_version.py").read_text(), namespace)
    return namespace["__version__"]


def refusals(tag: str | None, repository: str | None, takes_placeholder: bool) -> list[str]:
    """Why no release should be made of this tree; nothing if there is no reason."""
    own = setting("Repository")
    reasons = []
    if tag and tag != f"v{version()}":
        reasons.append(f"the tag is {tag}, the version in src/ncclscope/_version.py {version()}")
    if repository and repository != own:
        reasons.append(f"the repository is {repository}, pyproject.toml names {own}")
    if own == addresses.PLACEHOLDER and not (takes_placeholder or repository):
        reasons.append(
            f"{own} in pyproject.toml is made up. Set Repository in [project.urls] to yours, run "
            "python -m tools.addresses; to try the build alone: "
            "make release RELEASE_OPTIONS=--placeholder-addresses"
        )
    if stale := addresses.stale_files():
        reasons.append(f"{', '.join(stale)}: other addresses. Run python -m tools.addresses")
    return reasons


def copy_tree(directory: Path) -> None:
    """Copies what git knows, or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    readme = directory / "README.md"
    readme.write_text(readme_for_index(readme.read_text(), f"v{version()}"))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python to try: of this machine, or below another root directory."""

    minor: int
    path: str
    root: Path | None = None

    def command(self, words: list[str]) -> list[str]:
        """Runs words where this Python lives; mounts of a chroot end with the command."""
        if self.root is None:
            return words
        root = shlex.quote(str(self.root))
        script = (
            f"mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc && "
            f"exec chroot {root} {shlex.join(words)}"
        )
        return ["unshare", "--mount", "sh", "-c", script]


@dataclass(frozen=True, slots=True)
class Tried:
    """A Python with which the wheel works."""

    minor: int
    version: str
    glibc: str
    packages: str  # numpy's and duckdb's versions


def interpreters(roots: list[Path]) -> list[Interpreter]:
    """The newest installed Python of each supported version, pyenv's and those of other roots."""
    versions = Path.home() / ".pyenv" / "versions"
    chosen = []
    for minor in range(_OLDEST, _NEWEST + 1):
        path = shutil.which(f"python3.{minor}")
        others = sorted(versions.glob(f"3.{minor}.*/bin/python3"))
        candidates = [
            Interpreter(minor, one) for one in [*([path] if path else []), *map(str, others)]
        ]
        inside = f"/usr/bin/python3.{minor}"
        candidates += [
            Interpreter(minor, inside, root) for root in roots if (root / inside[1:]).exists()
        ]
        chosen += [candidate for candidate in candidates if _works(candidate)][:1]
    return chosen


def _works(python: Interpreter) -> bool:
    """Whether it starts: pyenv has shims for Pythons that are not chosen."""
    command = python.command([python.path, "-c", "import ensurepip, venv"])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


_USE = """
import importlib.metadata, pathlib, platform, ncclscope
from ncclscope.documentation import page
assert pathlib.Path(page('verbs/run.md')).is_file()
assert ncclscope.open('job').diagnose().findings
print(platform.python_version(), platform.libc_ver()[1], sep='|', end='|')
print(*(f'{name} {importlib.metadata.version(name)}' for name in ('numpy', 'duckdb')), sep=', ')
"""


def try_wheel(python: Interpreter, wheel: Path) -> Tried:
    """Installs a wheel into a clean environment, records and reports a job, opens it in Python."""
    outside = python.root / "tmp" if python.root else None
    with tempfile.TemporaryDirectory(dir=outside) as scratch:
        shutil.copy(wheel, scratch)
        inside = Path("/tmp", Path(scratch).name) if python.root else Path(scratch)
        (Path(scratch) / "use.py").write_text(_USE)
        if python.root:  # names and certificates of this machine
            for name in ("resolv.conf", "ssl/certs/ca-certificates.crt"):
                shutil.copy(Path("/etc", name), python.root / "etc" / name)
        own, tool = "venv/bin/python", "venv/bin/ncclscope"
        steps = [
            [python.path, "-m", "venv", "venv"],
            [own, "-m", "pip", "install", "-q", wheel.name],
            [own, "-m", "pip", "check"],
            [tool, "demo", "-o", "job"],
            [tool, "diagnose", "job"],
            [tool, "dashboards", "-o", "dashboards"],
            [own, "use.py"],
        ]
        script = f"cd {inside} && " + " && ".join(map(shlex.join, steps))
        done = subprocess.run(
            python.command(["sh", "-c", script]), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"fails with Python 3.{python.minor}:\n{done.stdout}{done.stderr}")
        version, glibc, packages = done.stdout.splitlines()[-1].split("|")
        return Tried(python.minor, version, glibc, packages)


def platform_of(verdict: str) -> str:
    """The oldest platform that a wheel's libraries run on, from what auditwheel says of it."""
    found = re.search(r'consistent with the following platform tag: "(\w+)"', verdict)
    return found.group(1) if found else ""


def audit(wheel: Path) -> str:
    """auditwheel's verdict, which must be the platform in the wheel's name."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    verdict = " ".join((done.stdout + done.stderr).split()).replace(" .", ".")
    if not wheel.stem.endswith(f"-{platform_of(verdict)}"):
        raise SystemExit(f"{wheel.name}: auditwheel finds another platform:\n{verdict}")
    return verdict


def build() -> list[Path]:
    """Builds sdist and wheels from a clean copy, and checks their metadata."""
    shutil.rmtree(wheels.DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        copy_tree(Path(scratch))
        built = wheels.build_all(Path(scratch))
    files = sorted(wheels.DIST.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    return built


def missing(tried: list[Tried]) -> list[str]:
    """The supported Pythons that were not tried."""
    minors = {one.minor for one in tried}
    return [f"3.{minor}" for minor in range(_OLDEST, _NEWEST + 1) if minor not in minors]


def main() -> None:
    """Builds and checks everything; ends with an error at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description="Builds a release and tries it.")
    parser.add_argument("--root", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--no-build", action="store_true", help="try the wheels in dist/")
    parser.add_argument("--tag", help="the tag that is released")
    parser.add_argument("--repository", metavar="URL", help="the repository that releases it")
    parser.add_argument("--placeholder-addresses", action="store_true")
    chosen = parser.parse_args()
    if reasons := refusals(chosen.tag, chosen.repository, chosen.placeholder_addresses):
        raise SystemExit("no release: " + "\n            ".join(reasons))
    built = sorted(wheels.DIST.glob("*.whl")) if chosen.no_build else build()
    for wheel in built:
        print(audit(wheel), flush=True)
    (own,) = [wheel for wheel in built if platform.machine() in wheel.name]
    tried = []
    with ThreadPoolExecutor() as pool:
        for result in pool.map(lambda python: try_wheel(python, own), interpreters(chosen.root)):
            tried.append(result)
            print(f"works with Python {result.version}", flush=True)
    print(f"its pages lead to {setting('Repository')} and {setting('Documentation')}")
    files = sorted(wheels.DIST.iterdir())
    print(*files, sep="\n")
    untried = missing(tried)
    if chosen.publish:
        rows: list[list[object]] = [[one.version, one.glibc, one.packages] for one in tried]
        sizes = ", ".join(f"`{file.name}` {file.stat().st_size / 1e6:.2f} MB" for file in files)
        verdict = f"Not tried: Python {', '.join(untried)}." if untried else "All supported ones."
        body = table(["Python", "glibc", "with"], rows)
        publish("release", f"{body}\n\n{verdict} Built: {sizes}.")
    if untried:
        names = ", ".join(untried)
        raise SystemExit(
            f"*** NOT TRIED: Python {names}, not installed here. Install them, or name a system "
            "that has them: python -m tools.release --root DIR ***"
        )


if __name__ == "__main__":
    main()
