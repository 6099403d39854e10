"""Records what every verb says of a fixed set of captures, so that a change of the inside can be
held against what users saw before it.

    python -m tools.outputs captures DIR          make the captures, once
    python -m tools.outputs record DIR OUT        what this tree's verbs say of them
    python -m tools.outputs compare OUT_A OUT_B   exit code 1 if they differ

Each verb runs on a fresh copy of a capture at a fixed path, so that no path, saved model or file
date differs between two recordings. Binary outputs are recorded as rows or checksums.
"""

import argparse
import base64
import difflib
import filecmp
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STAGE = Path("/tmp/ncclscope-outputs")  # where captures lie while verbs look at them
OPTIONS = {
    "report": ("report",),
    "report-80": ("report",),
    "report-json": ("report", "--json"),
    "report-csv": ("report", "--csv", "--by", "+rank"),
    "report-by": ("report", "--by", "communicator,algorithm,protocol,host"),
    "report-part": ("report", "--json", "--op", "AllReduce", "--last", "50ms"),
    "status": ("status",),
    "status-json": ("status", "--json"),
    "diagnose": ("diagnose",),
    "diagnose-json": ("diagnose", "--json"),
    "dump": ("dump",),
    "dump-json": ("dump", "--json"),
    "dump-system": ("dump", "--system"),
    "ls": ("ls",),
    "serve": ("serve", "--once", "--all-hosts"),
    "serve-inspector": ("serve", "--once", "--all-hosts", "--inspector-names"),
    "top": ("top", "--once"),
}
EXPORTS = ("jsonl", "csv", "parquet", "perfetto", "chrome", "inspector", "callbacks", "otf2")
PAIRS = (
    ("transcript-2.28.9-v5-2ranks", "transcript-2.30.7-v6-2ranks"),
    ("planted-healthy", "planted-bandwidth_drop"),
    ("synthetic", "planted-slow_link"),
)
# What differs between two runs of the same code: durations of the reading itself, ages, ports.
UNSTABLE = (
    (re.compile(r"^(ncclscope_(?:reading|serve_cpu)_seconds\S* ).*$", re.M), r"\1…"),
    (re.compile(r"not been heard of for [\d,]+ s"), "not been heard of for … s"),
    (re.compile(r"[\d,]+ (s|min|h|d|days?) ago"), "… ago"),
)


# ---- captures ----
def _transcripts(root: Path) -> None:
    from tests.support.player import FOLDERS, TRANSCRIPTS, play_job, transcript_files
    from tests.support.writer import from_transcript

    for folder in FOLDERS:
        from_transcript(TRANSCRIPTS / folder, root / f"transcript-{folder}")
    four = "2.28.9-v5-4ranks"
    from_transcript(TRANSCRIPTS / four, root / "transcript-trace", mode="trace")
    for mode in ("profile", "full"):
        play_job(transcript_files(four), root / f"played-{mode}", mode=mode)
    for left in root.glob("*.jsonl"):  # the player's input
        left.unlink()


def _simulated(root: Path) -> None:
    import numpy as np

    from tests.support.fake_machine import with_samples
    from tests.support.planted_faults import FAULTS, PlantedJob, plant_faults, random_job
    from tests.support.writer import Straggler, SyntheticSpec, synthetic

    PlantedJob("healthy", random_job(np.random.default_rng(1), 16)).write(
        root / "planted-healthy", 1
    )
    for seed, kind in enumerate(FAULTS):
        plant_faults((kind,), seed, 16).write(root / f"planted-{kind.replace(' ', '_')}", seed)
    synthetic(root / "synthetic", SyntheticSpec(ranks_per_node=4, operations=400))
    late = SyntheticSpec(ranks_per_process=2, processes=4, straggler=Straggler(3, 2_000_000))
    synthetic(root / "synthetic-late", late)
    several = SyntheticSpec(attempts=2, missing=frozenset({5}), killed=frozenset({2}), version=7)
    synthetic(root / "synthetic-attempts", several)
    shutil.copytree(root / "planted-late_rank", root / "system")
    with_samples(root / "system")
    shutil.rmtree(root / "system" / "model")


def _imports(root: Path) -> None:
    from tests.support import foreign_samples

    raw = root / "foreign"
    raw.mkdir()
    foreign_samples.inspector_logs(raw / "inspector")
    foreign_samples.nsys_export(raw / "nsys.sqlite")
    (raw / "chrome").mkdir()
    for rank in range(2):
        text = json.dumps(foreign_samples.torch_trace(rank))
        (raw / "chrome" / f"rank{rank}.json").write_text(text)
    (raw / "tests.json").write_text(json.dumps(foreign_samples.nccl_tests_result()))
    (raw / "flight").mkdir()
    for rank in range(3):
        text = json.dumps(foreign_samples.hung_dump(rank))
        (raw / "flight" / f"rank_{rank}.json").write_text(text)


def make_captures(root: Path) -> None:
    """All captures, and under `foreign` files to import."""
    root.mkdir(parents=True)
    for make in (_transcripts, _simulated, _imports):
        make(root)


# ---- recording ----
@dataclass(frozen=True)
class Recorder:
    """Runs verbs in the stage's directory and keeps what they say."""

    out: Path

    def run(self, name: str, *words: str) -> None:
        """One command: its exit code, stdout and stderr in one file."""
        done = _ncclscope(words, 80 if name.endswith("-80") else 160)
        text = f"exit {done.returncode}\n{done.stdout}\n---- stderr\n{done.stderr}"
        for pattern, instead in UNSTABLE:
            text = pattern.sub(instead, text)
        self.keep(name, text)

    def keep(self, name: str, text: str) -> None:
        """A text under a name."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _ncclscope(words: tuple[str, ...], columns: int = 160) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("NCCL")}
    env |= {"COLUMNS": str(columns), "NO_COLOR": "1", "TZ": "UTC"}
    command = [sys.executable, "-m", "ncclscope", *words]
    return subprocess.run(
        command, cwd=STAGE, env=env, capture_output=True, text=True, timeout=600, check=False
    )


def _parquet_rows(path: Path) -> str:
    import duckdb

    columns = duckdb.sql(f"describe select * from '{path}'").fetchall()
    rows = duckdb.sql(f"select * from '{path}'").fetchall()
    return "\n".join(map(str, [*columns, *rows]))


def _contents(path: Path) -> Iterator[str]:
    """A file or a directory as lines: text as it is, the rest as rows or checksums."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        name = file.relative_to(path.parent)
        content = file.read_bytes()
        if file.suffix == ".parquet":
            yield f"== {name}\n{_parquet_rows(file)}"
            continue
        if file.suffix == ".otf2":  # the anchor: when and by whom it was written
            continue
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        try:
            yield f"== {name}\n{content.decode()}"
        except UnicodeDecodeError:
            yield f"== {name} {len(content)} {hashlib.sha256(content).hexdigest()}"


def _exports(recorder: Recorder, name: str) -> None:
    for form in EXPORTS:
        target = STAGE / "exported" / form
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        recorder.run(f"{name}/export-{form}", "export", name, "--to", form, "-o", str(target))
        if target.exists():
            recorder.keep(f"{name}/export-{form}.contents", "\n".join(_contents(target)))
    page = STAGE / "exported" / "page.html"
    recorder.run(f"{name}/timeline-html", "timeline", name, "--html", str(page))
    if page.exists():
        packed = re.search(r'id="data">([^<]*)<', page.read_text())
        data = gzip.decompress(base64.b64decode(packed[1])) if packed else b""
        recorder.keep(f"{name}/timeline-html.contents", data.decode())


@contextmanager
def _timeline(name: str) -> Iterator[str]:
    """The address of a timeline's server that has read everything."""
    command = [sys.executable, "-m", "ncclscope", "timeline", name, "--no-open"]
    with subprocess.Popen(
        command, cwd=STAGE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                found = re.search(r"http://\S+", line)
                if found:
                    base = found[0].rstrip("/")
                    _await_all(base)
                    yield base
                    break
        finally:
            server.terminate()


def _await_all(base: str) -> None:
    """Until the server has drawn everything: it says so by having nothing left to do."""
    idle = 0
    while idle < 3:
        state = json.loads(_get(f"{base}/api/state"))
        idle = idle + 1 if state["generation"] and not state["progress"] else 0
        time.sleep(0.2)


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        body: bytes = answer.read()
    return body


def _answers(recorder: Recorder, name: str) -> None:
    """What the timeline's server answers to questions about everything."""
    with _timeline(name) as base:
        scene = json.loads(_get(f"{base}/api/scene"))
        recorder.keep(f"{name}/timeline-scene", json.dumps(scene, indent=1))
        rows = [
            row
            for lane in _lanes(scene["lanes"])
            for track in lane["tracks"]
            for row in track["rows"]
        ]
        if not rows:
            return
        every = f"rows=0-{max(rows)}&t0=0&t1={scene['span_ns']}"
        for question in (
            f"span?{every}",
            f"marks?{every}",
            "highlights?",
            "overview?w=256",
            "find?q=rank:1",
        ):
            text = json.dumps(json.loads(_get(f"{base}/api/{question}")), indent=1)
            recorder.keep(f"{name}/timeline-{question.partition('?')[0]}", text)
        level = max(scene["span_ns"].bit_length() - 9, 0)
        for kind in ("tile", "line"):
            body = _get(f"{base}/api/{kind}?z={level}&i=0&rows=0-{max(rows)}")
            recorder.keep(f"{name}/timeline-{kind}", hashlib.sha256(body).hexdigest())


def _lanes(lanes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for lane in lanes:
        yield lane
        yield from _lanes(lane.get("children", []))


def _pack(recorder: Recorder, name: str) -> None:
    archive = STAGE / "packed.tar.gz"
    recorder.run(f"{name}/pack", "pack", name, "-o", str(archive), "--replace-hosts")
    if archive.exists():
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as packed:
            lines = [
                f"{member.name} {member.size} "
                + hashlib.sha256(packed.extractfile(member).read()).hexdigest()  # type: ignore[union-attr]
                for member in packed
                if member.isfile()
            ]
        recorder.keep(f"{name}/pack.contents", "\n".join(sorted(lines)))


def _clear_stage() -> None:
    """Empties the stage; it stays, because something may be mounted there."""
    STAGE.mkdir(exist_ok=True)
    for path in STAGE.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _of_capture(recorder: Recorder, captures: Path, name: str) -> None:
    _clear_stage()
    subprocess.run(["cp", "-a", captures / name, STAGE / name], check=True)
    for verb, words in OPTIONS.items():
        recorder.run(f"{name}/{verb}", *words, *([] if words[0] == "ls" else [name]))
    _exports(recorder, name)
    _answers(recorder, name)
    _pack(recorder, name)


def _imported(recorder: Recorder, captures: Path) -> None:
    _clear_stage()
    for raw in sorted((captures / "foreign").iterdir()):
        name = f"import-{raw.stem}"
        subprocess.run(["cp", "-a", raw, STAGE / raw.name], check=True)
        recorder.run(f"{name}/import", "import", raw.name, "-o", name)
        for verb in ("report-json", "diagnose", "status"):
            recorder.run(f"{name}/{verb}", *OPTIONS[verb], name)


def _compared(recorder: Recorder, captures: Path) -> None:
    for a, b in PAIRS:
        _clear_stage()
        for name in (a, b):
            subprocess.run(["cp", "-a", captures / name, STAGE / name], check=True)
        for verb, options in (("compare", ()), ("compare-json", ("--json",))):
            recorder.run(f"{a}+{b}/{verb}", "compare", *options, a, b)


def record(captures: Path, out: Path, only: str) -> None:
    """What the verbs of this tree say of all captures."""
    recorder = Recorder(out.resolve())
    names = sorted(path.name for path in captures.iterdir() if path.name != "foreign")
    for name in names:
        if re.search(only, name):
            print(name, flush=True)
            _of_capture(recorder, captures, name)
    if not only:
        _imported(recorder, captures)
        _compared(recorder, captures)
    _clear_stage()


def compare(a: Path, b: Path) -> int:
    """Prints how two recordings differ; 1 if they do."""
    names = [
        sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()) for root in (a, b)
    ]
    differ = 0
    for name in sorted({*names[0], *names[1]}):
        if not (a / name).exists() or not (b / name).exists():
            differ += 1
            print(f"only in {a if (a / name).exists() else b}: {name}")
        elif not filecmp.cmp(a / name, b / name, shallow=False):
            differ += 1
            lines = [(root / name).read_text(errors="replace").splitlines() for root in (a, b)]
            print(f"differs: {name}")
            for line in list(difflib.unified_diff(*lines, lineterm="", n=0))[2:14]:
                print(f"    {line[:200]}")
    print(f"{differ} of {len(set(names[0]) | set(names[1]))} differ")
    return int(differ > 0)


def main() -> int:
    """Runs one of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("captures", "record", "compare"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="captures to look at")
    arguments = parser.parse_args()
    if arguments.what == "captures":
        make_captures(arguments.paths[0])
    elif arguments.what == "record":
        record(*arguments.paths, arguments.only)
    else:
        return compare(*arguments.paths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
