"""Results as JSON: ncclscope's own form, which is also what a baseline is, and nccl-tests'."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncclscope._version import __version__
from ncclscope.analysis.baseline import FORM, FORM_VERSION
from ncclscope.bench.plan import Plan
from ncclscope.bench.results import Result, Session, spread_of
from ncclscope.bench.table import SIMULATED, average_busbw, rows_of, scaled
from ncclscope.nccl.releases import release_of_code

_NCCL_TESTS_VERSION = 2
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class Finished:
    """A benchmark that is over."""

    plan: Plan
    session: Session
    results: tuple[Result, ...]
    words: tuple[str, ...]  # of the command
    started: float  # seconds since 1970
    ended: float


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _result(result: Result) -> dict[str, Any]:
    case = result.case
    awaited = [times.host_ns for times in result.ranks if (times.host_ns >= 0).all()]
    return {
        "operation": case.what.function,
        "variant": case.operation,
        "size_bytes": result.size_bytes,
        "asked_bytes": case.size_bytes,
        "count": result.count,
        "datatype": case.datatype,
        "reduction": case.reduction,
        "root": case.root,
        "in_place": case.in_place,
        "ranks": case.ranks,
        "calls": result.calls,
        "grouped": result.grouped,
        "wrong": result.wrong,
        "time_ns": round(result.time_ns),
        "algbw_gbs": _rounded(result.algbw_gbs),
        "busbw_gbs": _rounded(result.busbw_gbs),
        **{
            name: value
            for name, value in spread_of(result.slowest_ns).as_json().items()
            if name != "count"
        },
        "gap_share": _rounded(result.gap_share),
        "host_bound": result.host_bound,
        "runs": [spread_of(run).as_json() for run in result.runs],
        "by_rank": [
            {
                "rank": times.rank,
                "gpu": spread_of(times.gpu_ns / result.grouped).as_json(),
                "call": spread_of(times.call_ns).as_json(),
                "host": spread_of(times.host_ns).as_json() if awaited else None,
                "loops": [asdict(loop) for loop in times.loops],
            }
            for times in result.ranks
        ],
    }


def _scaling(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [
        {
            "operation": result.case.what.function,
            "variant": result.case.operation,
            "size_bytes": result.size_bytes,
            "in_place": result.case.in_place,
            "ranks": result.case.ranks,
            "busbw_gbs": _rounded(result.busbw_gbs),
            "efficiency": _rounded(efficiency),
        }
        for group in scaled(results).values()
        for result, efficiency in group
    ]


def as_json(finished: Finished) -> dict[str, Any]:
    """ncclscope's own form."""
    session = finished.session
    return {
        "form": FORM,
        "form_version": FORM_VERSION,
        "ncclscope": __version__,
        "simulated": bool(session.simulation),
        **({"simulation": f"{SIMULATED} ({session.simulation})"} if session.simulation else {}),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(finished.started)),
        "seconds": round(finished.ended - finished.started, 3),
        "nccl": ".".join(map(str, release_of_code(session.nccl))),
        "cuda": session.cuda,
        "ranks": session.ranks,
        "hosts": len({device.host for device in session.devices}),
        "devices": [asdict(device) for device in session.devices],
        "settings": finished.plan.as_json(),
        "results": [_result(result) for result in finished.results],
        "scaling": _scaling(finished.results) if finished.plan.worlds else [],
        "notes": list(session.notes),
    }


def _word(value: bool) -> str:
    return "true" if value else "false"  # nccl-tests write truth in quotes


def _body(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "time": result.time_ns / 1e3,
        "alg_bw": result.algbw_gbs or 0.0,
        "bus_bw": result.busbw_gbs or 0.0,
        "nwrong": None if result.wrong is None else float(result.wrong),
    }


def _iterations(result: Result) -> dict[str, Any]:
    slowest = result.slowest_ns
    spread = spread_of(slowest)
    variation = 100 * spread.deviation_ns / spread.mean_ns if spread.mean_ns else 0.0
    return {
        "min_us": spread.min_ns / 1e3,
        "max_us": spread.max_ns / 1e3,
        "avg_us": spread.mean_ns / 1e3,
        "p50_us": spread.median_ns / 1e3,
        "p95_us": spread.p95_ns / 1e3,
        "p99_us": spread.p99_ns / 1e3,
        "stdev_us": spread.deviation_ns / 1e3,
        "cv_pct": variation,
        "times_us": (slowest / 1e3).tolist(),
        "per_process_max_times_us": [
            (times.gpu_ns / result.grouped / 1e3).tolist() for times in result.ranks
        ],
    }


def _line(row: tuple[Result | None, Result | None]) -> dict[str, Any]:
    known = row[0] or row[1]
    assert known is not None
    line: dict[str, Any] = {
        "size": known.size_bytes,
        "count": known.count,
        "type": known.case.datatype,
        "redop": known.case.reduction,
        "root": f"{known.case.root:6}",
    }
    for name, result in zip(("out_of_place", "in_place"), row, strict=True):
        line[name] = _body(result)
        if result is not None:
            line[f"{name}_per_iter"] = _iterations(result)
    return line | {"actual_iterations": known.calls, "experiment_name": known.case.what.title}


def as_nccl_tests(
    finished: Finished, environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """What nccl-tests' own -J writes. Of the environment, NCCL's and CUDA's variables only."""
    plan, session, results = finished.plan, finished.session, finished.results
    wrong = sum(result.wrong or 0 for result in results)
    kept = [f"{k}={v}" for k, v in sorted(environment.items()) if k.startswith(("NCCL_", "CUDA_"))]
    step = {"step_factor": 2}
    if len(plan.sizes) > 1:
        step = {"step_factor": max(round(plan.sizes[1] / plan.sizes[0]), 1)}
    return {
        "version": _NCCL_TESTS_VERSION,
        "start_time": time.strftime(_TIME, time.localtime(finished.started)),
        "args": list(finished.words),
        "env": kept,
        "nccl_version": session.nccl,
        **({"simulation": SIMULATED} if session.simulation else {}),
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": plan.sizes[0],
            "maximum_bytes": plan.sizes[-1],
            **step,
            "warmup_iters": max(plan.warm_up, 1),
            "iterations": plan.calls or 0,
            "aggregated_iterations": plan.grouped,
            "validation": plan.checks,
            "graph": int(plan.graph),
            "blocking_collectives": _word(plan.blocking),
            "per_iter_timing": _word(True),
            "parallel_init": _word(False),
            "devices": [
                {
                    "rank": one.rank,
                    "group": 0,
                    "pid": one.pid,
                    "hostname": one.host,
                    "device": one.device,
                    "device_hex": one.bus_id,
                    "device_info": one.name,
                }
                for one in session.devices
            ],
        },
        "results": [_line(row) for row in rows_of(results, plan)],
        "out_of_bounds": {"count": wrong, "okay": _word(wrong == 0)},
        "average_bus_bandwidth": {"bandwidth": average_busbw(results), "okay": "unchecked"},
        "errors": [],
        "end_time": time.strftime(_TIME, time.localtime(finished.ended)),
    }
