"""Baselines: what bench saved, read strictly, and what nccl-tests wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from ncclscope.analysis.baseline import FORM, FORM_VERSION, Expected, function_key, read_baseline
from ncclscope.errors import UsageError

RESULT = {"operation": "AllReduce", "size_bytes": 1024, "busbw_gbs": 12.5}
BENCH = {"form": FORM, "version": FORM_VERSION, "simulated": False, "results": [RESULT]}
NCCL_TESTS = {
    "args": ["./build/all_reduce_perf", "-b", "1K"],
    "results": [{"size": 1024, "out_of_place": {"bus_bw": 12.5}, "in_place": {"bus_bw": 13.0}}],
}


def written(folder: Path, document: object) -> Path:
    path = folder / "baseline.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("document", [BENCH, NCCL_TESTS])
def test_both_forms_give_bandwidths_by_function_and_size(
    document: dict[str, Any], tmp_path: Path
) -> None:
    baseline = read_baseline(written(tmp_path, document))
    expected = Expected("allreduce", 1024, 12.5)
    assert baseline.expected == (expected,)
    assert baseline.by_case() == {("allreduce", 1024): expected}


def test_all_programs_spell_a_function_alike() -> None:
    assert {function_key(name) for name in ("AllReduce", "all_reduce", "ALLREDUCE")} == {
        "allreduce"
    }


def test_a_result_without_bus_bandwidth_is_left_out(tmp_path: Path) -> None:
    results = [RESULT, {**RESULT, "size_bytes": 2048, "busbw_gbs": None}]
    baseline = read_baseline(written(tmp_path, {**BENCH, "results": results}))
    assert [case.size_bytes for case in baseline.expected] == [1024]


@pytest.mark.parametrize(
    "document",
    [
        {**BENCH, "version": FORM_VERSION + 1},
        {**BENCH, "version": None},
        {key: value for key, value in BENCH.items() if key != "simulated"},
        {**BENCH, "results": 5},
        {**BENCH, "results": [{}]},
        {**BENCH, "results": [{**RESULT, "size_bytes": "1024"}]},
        {**BENCH, "results": [{**RESULT, "size_bytes": -1}]},
        {**BENCH, "results": [{**RESULT, "busbw_gbs": "12.5"}]},
        {**BENCH, "results": [{**RESULT, "busbw_gbs": float("nan")}]},
    ],
)
def test_a_file_of_bench_is_read_strictly(document: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_baseline(written(tmp_path, document))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"form": "other", "results": [RESULT]},
        {"results": [RESULT]},
        {**NCCL_TESTS, "args": []},
        {**NCCL_TESTS, "results": [{"size": 1024, "out_of_place": {"bus_bw": 0.0}}]},
        {**NCCL_TESTS, "results": [{"size": True, "out_of_place": {"bus_bw": 1.0}}]},
        {**BENCH, "results": []},
    ],
)
def test_what_has_no_bandwidths_is_no_baseline(document: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it holds no bus bandwidths"):
        read_baseline(written(tmp_path, document))


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_baseline(tmp_path / "missing")
    (tmp_path / "text").write_text("{")
    with pytest.raises(UsageError, match="it is not JSON"):
        read_baseline(tmp_path / "text")
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="it is not JSON"):
        read_baseline(tmp_path / "deep")
