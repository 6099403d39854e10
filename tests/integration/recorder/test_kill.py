"""Random SIGKILLs under load, with chunks recycled many times over: nothing certain is lost,
nothing is corrupt.
"""

from pathlib import Path

from tests.support.exhaustive import IS_EXHAUSTIVE
from tests.support.kill_loop import kill_once

KILLS = 100 if IS_EXHAUSTIVE else 15  # benchmarks/kills.py makes thousands


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    verdicts = [kill_once(tmp_path, seed) for seed in range(KILLS)]
    assert [verdict.problem for verdict in verdicts if verdict.problem] == []
    assert sum(verdict.checked for verdict in verdicts) > 1_000_000
    assert sorted(verdict.recycled for verdict in verdicts)[KILLS // 2] >= 4, (
        "chunks were not recycled often enough"
    )
