"""Sums of jobs made by chance, with a bad host planted; no rule of the history is used here.

Each job runs on some hosts of a fleet, in an order of its own. A step takes a while on each host,
and everybody waits for the slowest. A bad host is slower in some of its jobs. What is kept is what
the steps came to.
"""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ncclscope.history.sums import shape_of
from ncclscope.history.tables import CommunicatorRow, HostRow, JobRow, JobSums, LinkRow, ModuleRow
from ncclscope.simulation.scenario import Scenario
from tests.support.writer.scenario import write_scenario

START_NS = 1_794_722_400 * 10**9  # 2026-11-15 06:00:00 UTC
RANKS_PER_HOST = 8
_STEPS, _STEP_NS = 100, 100e6


def fleet(hosts: int) -> list[str]:
    """Names of hosts."""
    return [f"node{number:03d}" for number in range(hosts)]


def made_job(
    number: int,
    hosts: list[str],
    generator: np.random.Generator,
    bad_host: str = "",
    bad_share: float = 0.7,
    slower: float = 0.10,
    first_slower: float = 0.0,
    step_factor: float = 1.0,
    reach: int = 1,
    modules: int = 0,
) -> JobSums:
    """Job `number`, one hour after the one before it, on these hosts in the order of ranks.

    `bad_share`: in this share of jobs the bad host is slower. `first_slower`: the first host is
    slower, whichever it is. `reach`: each host sends to so many hosts behind it. `modules`: of the
    user's model.
    """
    step_ns = _STEP_NS * step_factor
    own_ns = step_ns * generator.normal(1.0, 0.02, (_STEPS, len(hosts)))
    if bad_host in hosts and generator.random() < bad_share:
        own_ns[:, hosts.index(bad_host)] += slower * step_ns
    own_ns[:, 0] += first_slower * step_ns
    longest_ns = own_ns.max(axis=1)
    last = own_ns.argmax(axis=1)
    waits_ns = longest_ns[:, None] - own_ns
    second_ns = np.sort(own_ns, axis=1)[:, -2]
    caused = np.bincount(last, (longest_ns - second_ns) * (len(hosts) - 1), minlength=len(hosts))
    times_last = np.bincount(last, minlength=len(hosts))
    ranks = RANKS_PER_HOST * len(hosts)
    job = _job_row(number, ranks, len(hosts), longest_ns, waits_ns)
    kinds = _kinds(ranks, generator)
    rows = tuple(
        HostRow(
            host, place, RANKS_PER_HOST, ranks * job.span_ns, int(caused[place] * RANKS_PER_HOST),
            int(waits_ns[:, place].sum() * RANKS_PER_HOST), int(times_last[place]),
        )
        for place, host in enumerate(hosts)
    )  # fmt: skip
    links = tuple(
        LinkRow(a, b, float(generator.lognormal(0.0, 0.03)), _STEPS, 1e9)
        for far in range(1, reach + 1)
        for a, b in zip(hosts, hosts[far:] + hosts[:far], strict=True)
    )
    shape = shape_of(job, [(k.role, k.ranks, k.function, k.size_bytes, k.datatype) for k in kinds])
    own = tuple(_module(f"layers.{number}", generator) for number in range(modules))
    return JobSums(f"{number:012x}", shape, job, rows, kinds, links, own)


def _module(name: str, generator: np.random.Generator) -> ModuleRow:
    total_ns = int(1e9 * generator.lognormal(0.0, 0.02))
    return ModuleRow(name, 8 * _STEPS, 8 * _STEPS, total_ns, total_ns // 10)


def _job_row(
    number: int, ranks: int, hosts: int, longest_ns: np.ndarray, waits_ns: np.ndarray
) -> JobRow:
    step_ns = float(np.median(longest_ns))
    return JobRow(
        label=f"job{number}",
        capture=f"/captures/job{number}",
        started_ns=START_NS + number * 3600 * 10**9,
        span_ns=int(longest_ns.sum()),
        ranks=ranks,
        hosts=hosts,
        mode="trace",
        gpu_timing="kernel",
        simulation=False,
        complete=True,
        waiting_ns=int(waits_ns.sum() * RANKS_PER_HOST),
        structure_ns=0,
        round_kind="dp AllReduce 64 MiB bfloat16",
        round_ns=step_ns,
        mean_round_ns=float(longest_ns.mean()),
        steps=_STEPS,
        step_ns=step_ns,
        step_p99_ns=float(np.quantile(longest_ns, 0.99)),
    )


def _kinds(ranks: int, generator: np.random.Generator) -> tuple[CommunicatorRow, ...]:
    rows = []
    for role, size in (("dp", ranks // 8), ("tp", 8)):
        for function in ("AllReduce", "AllGather"):
            for power in range(16, 27):
                median_ns = float(2**power / 50 * generator.lognormal(0.0, 0.02))
                row = CommunicatorRow(
                    role, size, ranks // size, function, 2**power, "bfloat16", _STEPS, median_ns,
                    2 * median_ns, 0.1 * median_ns, 50.0, _STEPS * median_ns, exact=True,
                )  # fmt: skip
                rows.append(row)
    return tuple(rows)


def write_capture_of_job(path: Path, scenario: Scenario, number: int, seed: int) -> None:
    """A capture whose processes began `number` hours later than those of other written ones."""
    writer = import_module("tests.support.writer.synthetic")  # the package has a function of it
    with patch.object(writer, "_UNIX_NS", writer._UNIX_NS + number * 3600 * 10**9):
        write_scenario(path, scenario, seed=seed)


def relabelled(sums: JobSums, label: str) -> JobSums:
    """The same job under another name."""
    return replace(sums, job=replace(sums.job, label=label))
