"""Damaged captures get an answer or one sentence, from status and diagnose as well."""

import random
import shutil
import time
from pathlib import Path

import pytest

from ncclscope.cli import main
from tests.support.corruption import Damager
from tests.support.player import TRANSCRIPTS
from tests.support.writer import from_transcript
from tests.support.writer.live import write_hang

ROUNDS = 60


def damaged(whole: Path, copy: Path, seed: int, names: tuple[str, ...]) -> list[str]:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    files = sorted(path for name in names for path in copy.glob(f"*/{name}"))
    draw, damager = random.Random(seed), Damager(seed)
    return [damager.damage(draw.choice(files)) for _ in range(draw.choice((1, 2, 4, 8)))]


def test_status_of_damaged_live_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    write_hang(whole, 4, frozenset({2}), time.time_ns())
    for seed in range(ROUNDS):
        said = damaged(whole, tmp_path / "copy", seed, ("live", "meta"))
        assert main(["status", "--json", str(tmp_path / "copy")]) in (0, 1, 2, 4), said
        capsys.readouterr()


@pytest.mark.parametrize("name", ["2.28.9-v5-3ranks-hang", "2.28.9-v5-4ranks-straggler"])
def test_damaged_logs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from_transcript(TRANSCRIPTS / name, tmp_path / "whole", boot_ids={r: f"b{r}" for r in range(4)})
    for seed in range(ROUNDS // 4):
        said = damaged(tmp_path / "whole", tmp_path / "copy", seed, ("log.*", "meta"))
        assert main(["status", "--json", str(tmp_path / "copy")]) in (0, 1, 2, 4), said
        assert main(["diagnose", "--json", str(tmp_path / "copy")]) in (0, 1, 2), said
        capsys.readouterr()
