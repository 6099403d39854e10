"""Results as JSON: in ncclscope's own form, which baselines have too, and in nccl-tests' form."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncclscope._version import __version__
from ncclscope.analysis.baseline import FORM, FORM_VERSION
from ncclscope.bench.plan import Plan
from ncclscope.bench.results import Result, Session, time_statistics
from ncclscope.bench.table import SIMULATED, average_busbw, rows_of, scaling_groups
from ncclscope.nccl.releases import release_of_code, text_of

_NCCL_TESTS_VERSION = 2
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A finished benchmark."""

    plan: Plan
    session: Session
    results: tuple[Result, ...]
    command: tuple[str, ...]
    started: float  # seconds since 1970
    ended: float


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _result(result: Result) -> dict[str, Any]:
    case = result.case
    awaited = [times.host_ns for times in result.ranks if (times.host_ns >= 0).all()]
    return {
        "operation": case.spec.function,
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
        "algbw_gbs": _round(result.algbw_gbs),
        "busbw_gbs": _round(result.busbw_gbs),
        **{
            name: value
            for name, value in time_statistics(result.slowest_ns).as_json().items()
            if name != "count"
        },
        "gap_share": _round(result.gap_share),
        "host_bound": result.host_bound,
        "runs": [time_statistics(run).as_json() for run in result.runs],
        "by_rank": [
            {
                "rank": times.rank,
                "gpu": time_statistics(times.gpu_ns / result.grouped).as_json(),
                "call": time_statistics(times.call_ns).as_json(),
                "host": time_statistics(times.host_ns).as_json() if awaited else None,
                "loops": [asdict(loop) for loop in times.loops],
            }
            for times in result.ranks
        ],
    }


def _scaling(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [
        {
            "operation": result.case.spec.function,
            "variant": result.case.operation,
            "size_bytes": result.size_bytes,
            "in_place": result.case.in_place,
            "ranks": result.case.ranks,
            "busbw_gbs": _round(result.busbw_gbs),
            "efficiency": _round(efficiency),
        }
        for group in scaling_groups(results).values()
        for result, efficiency in group
    ]


def as_json(run: BenchRun) -> dict[str, Any]:
    """A benchmark in ncclscope's own form."""
    session = run.session
    return {
        "form": FORM,
        "version": FORM_VERSION,
        "ncclscope": __version__,
        "simulated": bool(session.simulation),
        **({"simulation": f"{SIMULATED} ({session.simulation})"} if session.simulation else {}),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.started)),
        "span_ns": round((run.ended - run.started) * 1e9),
        "nccl": text_of(release_of_code(session.nccl)),
        "cuda": session.cuda,
        "ranks": session.ranks,
        "hosts": len({device.host for device in session.devices}),
        "devices": [asdict(device) for device in session.devices],
        "settings": run.plan.as_json(),
        "results": [_result(result) for result in run.results],
        "scaling": _scaling(run.results) if run.plan.worlds else [],
        "notes": list(session.notes),
    }


def _bool_text(value: bool) -> str:
    return "true" if value else "false"  # nccl-tests write booleans as strings


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
    times = time_statistics(slowest)
    variation = 100 * times.deviation_ns / times.mean_ns if times.mean_ns else 0.0
    return {
        "min_us": times.min_ns / 1e3,
        "max_us": times.max_ns / 1e3,
        "avg_us": times.mean_ns / 1e3,
        "p50_us": times.median_ns / 1e3,
        "p95_us": times.p95_ns / 1e3,
        "p99_us": times.p99_ns / 1e3,
        "stdev_us": times.deviation_ns / 1e3,
        "cv_pct": variation,
        "times_us": (slowest / 1e3).tolist(),
        "per_process_max_times_us": [
            (rank.gpu_ns / result.grouped / 1e3).tolist() for rank in result.ranks
        ],
    }


def _line(row: tuple[Result | None, Result | None]) -> dict[str, Any]:
    either = row[0] or row[1]
    assert either is not None
    line: dict[str, Any] = {
        "size": either.size_bytes,
        "count": either.count,
        "type": either.case.datatype,
        "redop": either.case.reduction,
        "root": f"{either.case.root:6}",
    }
    for name, result in zip(("out_of_place", "in_place"), row, strict=True):
        line[name] = _body(result)
        if result is not None:
            line[f"{name}_per_iter"] = _iterations(result)
    return line | {"actual_iterations": either.calls, "experiment_name": either.case.spec.title}


def as_nccl_tests(run: BenchRun, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """A benchmark in the form that nccl-tests' -J writes, with NCCL's and CUDA's variables only."""
    plan, session, results = run.plan, run.session, run.results
    wrong = sum(result.wrong or 0 for result in results)
    variables = [
        f"{name}={value}"
        for name, value in sorted(environment.items())
        if name.startswith(("NCCL_", "CUDA_"))
    ]
    step = {"step_factor": 2}
    if len(plan.sizes) > 1:
        step = {"step_factor": max(round(plan.sizes[1] / plan.sizes[0]), 1)}
    return {
        "version": _NCCL_TESTS_VERSION,
        "start_time": time.strftime(_TIME, time.localtime(run.started)),
        "args": list(run.command),
        "env": variables,
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
            "blocking_collectives": _bool_text(plan.blocking),
            "per_iter_timing": _bool_text(True),
            "parallel_init": _bool_text(False),
            "devices": [
                {
                    "rank": device.rank,
                    "group": 0,
                    "pid": device.pid,
                    "hostname": device.host,
                    "device": device.device,
                    "device_hex": device.bus_id,
                    "device_info": device.name,
                }
                for device in session.devices
            ],
        },
        "results": [_line(row) for row in rows_of(results, plan)],
        "out_of_bounds": {"count": wrong, "okay": _bool_text(wrong == 0)},
        "average_bus_bandwidth": {"bandwidth": average_busbw(results), "okay": "unchecked"},
        "errors": [],
        "end_time": time.strftime(_TIME, time.localtime(run.ended)),
    }
