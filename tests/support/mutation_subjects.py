"""Whole captures, datasets, archives and files of other tools, small, to be copied and damaged."""

import json
import pickle
import random
import shutil
from pathlib import Path

from ncclscope.capture.salvage import salvage
from ncclscope.cli import main
from ncclscope.model.build import open_model
from ncclscope.simulation.scenario import Call, Range, Scenario
from tests.support import foreign_samples
from tests.support.fake_machine import with_samples
from tests.support.player import TRANSCRIPTS, player, recording
from tests.support.writer import SyntheticSpec, from_transcript, synthetic, write_scenario

FORGED_NAME = "forged-"  # of datasets that need no further damage
_FORGED = 60
_NUMBERS = ("null", "-1", "-2", "0", "1", "127")
_VALUES = {
    "TINYINT": (*_NUMBERS, "cast(-128 as tinyint)"),
    "SMALLINT": (*_NUMBERS, "32767"),
    "INTEGER": (*_NUMBERS, "2147483647", "-2147483648"),
    "BIGINT": (*_NUMBERS, "9223372036854775807", "-9223372036854775807", "1 << 61"),
    "DOUBLE": (*_NUMBERS, "'nan'::double", "'inf'::double", "1e300"),
    "VARCHAR": ("null", "''", "'AllReduce'", "chr(27) || '[31m'", "repeat('x', 100000)"),
}
CAPTURES, DATASETS, PACKS, IMPORTS = "captures", "datasets", "packs", "imports"
_TRANSCRIPT_NAMES = ("2.23.4-v1-2ranks", "2.28.9-v5-3ranks-hang", "2.31.2-v7-2ranks")
_CONTEXT = (
    {"what": "facts", "torch": "2.9", "device": "cuda:0", "compute_stream": 7, "parameters": 99},
    {"what": "group", "name": "0", "description": "default_pg", "ranks": [0, 1]},
    {"what": "buckets", "buckets": [{"bytes": 4096, "parameters": ["layer.0.weight"]}]},
    {"what": "failure", "why": "no forward hooks"},
    {"what": "kernels", "file": "kernels.1.json", "ends_ns": [1, 2, 3]},
)


def make_subjects(below: Path) -> None:
    """Fills four folders: captures with their saved models, datasets, archives, other tools' files."""
    for name in (CAPTURES, DATASETS, PACKS, IMPORTS):
        (below / name).mkdir(parents=True)
    _captures(below / CAPTURES)
    for capture in sorted((below / CAPTURES).iterdir()):
        open_model(capture)  # each has a saved model, which the copies can have forged
    for name in ("ranges", "three-nodes"):
        capture = str(below / CAPTURES / name)
        assert main(["export", capture, "--to", "parquet", "-o", str(below / DATASETS / name)]) == 0
        archive = below / PACKS / name / f"{name}.tar.gz"
        archive.parent.mkdir()
        assert main(["pack", capture, "-o", str(archive)]) == 0
    _forge_datasets(below / DATASETS)
    _imports(below / IMPORTS)


def _forge_datasets(below: Path) -> None:
    """Datasets with a column of impossible values: damaged bytes of Parquet are mostly refused."""
    import duckdb  # late: what forks after it has run lacks its threads

    draw, wholes = random.Random(5), sorted(below.iterdir())
    for number in range(_FORGED):
        whole, forged = draw.choice(wholes), below / f"{FORGED_NAME}{number}"
        shutil.copytree(whole, forged)
        file = draw.choice(sorted(forged.rglob("*.parquet")))
        with duckdb.connect() as connection:
            described = connection.execute(f"describe select * from '{file}'").fetchall()
            name, dtype = draw.choice(described)[:2]
            value = draw.choice(_VALUES.get(dtype, _VALUES["VARCHAR"]))
            some = draw.choice(("true", "true", "random() < 0.3"))
            rows = f'select * replace (case when {some} then {value} else "{name}" end as "{name}")'
            connection.execute(f"copy ({rows} from '{file}') to '{file}.new' (format parquet)")
        Path(f"{file}.new").replace(file)


def _captures(below: Path) -> None:
    for name in _TRANSCRIPT_NAMES:
        from_transcript(TRANSCRIPTS / name, below / name, "trace" if "v1" in name else "full")
    few = SyntheticSpec(processes=3, operations=20, ranks_per_node=1, killed=frozenset((1,)))
    synthetic(below / "three-nodes", few)
    synthetic(below / "samples", SyntheticSpec(processes=2, operations=20, ranks_per_node=1))
    with_samples(below / "samples", samples=4)
    ranges = (Range("step {step}", 0, 1), Range("Optimizer.step#Adam.step", 2, ms=1, source=2))
    calls = (Call("world", "AllReduce", 1024),) * 2
    write_scenario(below / "ranges", Scenario(steps=6, calls=calls, ranges=ranges))
    for folder in sorted((below / "ranges").glob("*.*.*")):
        foreign_samples.write_lines(folder / "context.jsonl", _CONTEXT)
    for mode in ("profile", "full"):
        env = recording(below / f"played-{mode}", mode, RANK="0", WORLD_SIZE="1")
        words = ("load", "--collectives", 12, "--channels", 2, "--steps", 2)
        assert player(*words, env=env).returncode == 0
    killed = below / "killed"  # its arena is in the capture
    env = recording(killed, "trace", RANK="0", WORLD_SIZE="1", NCCLSCOPE_ARENA="1M")
    player("load", "--collectives", 12, "--channels", 2, "--end", "kill", env=env)
    assert salvage(killed)


def _imports(below: Path) -> None:
    for name in ("inspector", "flight-recorder", "flight-recorder-json", "nccl-tests", "comma",
                 "ncclsee", "chrome-ncclsee", "chrome-torch", "nsys", "nccl-log"):  # fmt: skip
        (below / name).mkdir()
    for rank in range(2):
        records = (foreign_samples.inspector_record(rank, number) for number in range(4))
        lines = [*records, foreign_samples.inspector_p2p(rank, 1 - rank)]
        foreign_samples.write_lines(below / "inspector" / f"node0-pid{100 + rank}.log", lines)
    for rank in range(3):
        dump = foreign_samples.hung_dump(rank)
        (below / "flight-recorder" / f"rank_{rank}").write_bytes(pickle.dumps(dump, 2))
        (below / "flight-recorder-json" / f"rank_{rank}.json").write_text(json.dumps(dump))
    texts = {
        "nccl-tests/result.json": json.dumps(foreign_samples.nccl_tests_result()),
        "comma/rank0.json": json.dumps([foreign_samples.comma_record(n) for n in range(5)]),
        "ncclsee/rank0.csv": foreign_samples.NCCLSEE,
        "chrome-ncclsee/rank0.json": json.dumps(foreign_samples.ncclsee_trace(0)),
        "chrome-torch/rank0.json": json.dumps(foreign_samples.torch_trace(0)),
        "nccl-log/new.log": foreign_samples.NCCL_LOG,
        "nccl-log/old.log": foreign_samples.OLD_LOG,
        "nccl-log/split.log": foreign_samples.SPLIT_LOG,
    }
    for name, text in texts.items():
        (below / name).write_text(text)
    foreign_samples.nsys_export(below / "nsys" / "run.sqlite")
