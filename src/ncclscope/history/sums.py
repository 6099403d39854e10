"""The sums of one job, from its model: what a history keeps instead of operations."""

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from ncclscope.analysis.job_samples import JobSamples, Key, KindSamples, base_name, rhythm_of
from ncclscope.analysis.links import link_times, p2p_transfers, proxy_step_transfers
from ncclscope.analysis.measures import percentiles
from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary import communicator_role
from ncclscope.analysis.time_selection import replayed_part
from ncclscope.analysis.training_steps import step_summary
from ncclscope.analysis.waiting.kept_account import kept_waiting_account
from ncclscope.analysis.waiting.origins import WaitingAccount, waiting_of
from ncclscope.arrays.types import Ints
from ncclscope.history.tables import CommunicatorRow, HostRow, JobRow, JobSums, LinkRow, ModuleRow
from ncclscope.humanize import binary_size
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_factor

# Bounds of a job's files: those with most time are kept. About 1 MB with all of them.
_MOST_KINDS, _MOST_LINKS, _MOST_MODULES = 4_000, 20_000, 4_000
_DIGITS = 12  # of a digest: two of a billion jobs are alike with a chance of 1 : 500

Row = TypeVar("Row", CommunicatorRow, LinkRow, ModuleRow)
Kind = tuple[str, int, str, int, str]  # role, ranks, function, bytes, datatype


def sums_of(model: Model, label: str = "") -> JobSums:
    """The sums of a capture's last attempt. `label`: instead of the capture's name."""
    samples = JobSamples(model)
    account, _ = kept_waiting_account(model, Selection())
    kind_of = _kinds_by_key(samples)
    communicators = _communicators(samples, kind_of)
    job = _job(samples, account, label)
    return JobSums(
        identity=_digest(sorted(f"{row.folder} {row.started_ns}" for row in model.processes)),
        shape=shape_of(job, (kind_of[key] for key in samples.counted or samples.kinds)),
        job=job,
        hosts=_hosts(samples.run, account, job.ranks * job.span_ns),
        communicators=_largest(communicators, _MOST_KINDS, lambda row: row.total_ns or 0.0),
        links=_links(samples.run),
        modules=_modules(samples.run),
    )


def shape_of(job: JobRow, kinds: Iterable[Kind]) -> str:
    """What equal jobs have in common: ranks, how they were recorded, and the kinds of their calls.
    A kind: a communicator's role and size, function, bytes and datatype. How often each was called
    does not count, nor on which hosts.
    """
    recorded = f"{job.ranks} {job.mode} {job.gpu_timing} {job.simulation}"
    return _digest([recorded, *sorted({" ".join(map(str, kind)) for kind in kinds})])


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def _largest(rows: Iterable[Row], most: int, key: Callable[[Row], float]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: -key(row))[:most])


# ---- the job ----
def _job(samples: JobSamples, account: WaitingAccount | None, label: str) -> JobRow:
    model, run = samples.model, samples.run
    kind = rhythm_of([samples])
    rounds = samples.rounds(kind) if kind else None
    steps = step_summary(model)
    processes = [row for row in model.processes if row.attempt == _last_attempt(model)]
    return JobRow(
        label=label or model.path.resolve().name,
        capture=str(model.path),
        started_ns=min((row.started_ns for row in processes), default=0),
        span_ns=samples.span_ns or max((row.lived_ns for row in processes), default=0),
        ranks=len(run.process_of),
        hosts=len(set(run.host_of.values())),
        mode=_all_of(row.mode for row in processes),
        gpu_timing=_all_of(row.gpu_timing for row in processes),
        simulation=model.completeness.is_simulation,
        complete=not model.completeness.missing(),
        waiting_ns=None if account is None else account.total_ns,
        structure_ns=None if account is None else account.structure_ns,
        round_kind="" if kind is None else f"{kind[0]} {kind[1]} {binary_size(kind[2])} {kind[3]}",
        round_ns=None if rounds is None else float(np.median(rounds.block_ns)),
        mean_round_ns=None if rounds is None else rounds.mean_ns,
        steps=0 if steps is None else steps.steps,
        step_ns=None if steps is None else float(steps.median_ns),
        step_p99_ns=None if steps is None else float(steps.p99_ns),
    )


def _last_attempt(model: Model) -> int:
    return max((row.attempt for row in model.processes), default=0)


def _all_of(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


# ---- hosts ----
def _hosts(run: Run, account: WaitingAccount | None, job_ns: int) -> tuple[HostRow, ...]:
    """Hosts in the order of their lowest ranks, with what the account says of their ranks."""
    ranks_of: dict[str, list[int]] = {}
    for rank in sorted(run.host_of):
        ranks_of.setdefault(run.host_of[rank], []).append(rank)
    of_rank = {} if account is None else {row.rank: row for row in account.ranks}
    rows = []
    for place, (host, ranks) in enumerate(ranks_of.items()):
        seen = [of_rank[rank] for rank in ranks if rank in of_rank]
        rows.append(
            HostRow(
                host=host,
                place=place,
                ranks=len(ranks),
                job_ns=job_ns,
                origin_ns=sum(row.origin_ns for row in seen) if seen else None,
                waited_ns=sum(row.waited_ns for row in seen) if seen else None,
                times_last=sum(row.times_last for row in seen) if seen else None,
            )
        )
    return tuple(rows)


# ---- communicators ----
def _kinds_by_key(samples: JobSamples) -> dict[Key, Kind]:
    """By communicator's name, function, size and datatype the same with the role of that name."""
    model, table = samples.model, samples.model.tables["communicators"]
    roles: dict[str, tuple[str, int]] = {}
    for row, name in enumerate(model.communicator_names):
        base, ranks = base_name(name), int(table["ranks"][row])
        role, most = roles.get(base) or (communicator_role(model, row), 0)
        roles[base] = role, max(most, ranks)
    return {key: (*roles[key[0]], *key[1:]) for key in (*samples.counted, *samples.kinds)}


def _communicators(samples: JobSamples, kind_of: dict[Key, Kind]) -> list[CommunicatorRow]:
    """Kinds of calls by role, from single calls where any is timed, else from counters."""
    counted = {key: kind.calls for key, kind in samples.kinds.items()} or samples.counted
    keys: dict[Kind, list[Key]] = {}
    for key in counted:
        keys.setdefault(kind_of[key], []).append(key)
    names = [base_name(name) for name in samples.model.communicator_names]
    return [
        _communicator(
            kind,
            sum(counted[key] for key in own),
            sum(names.count(name) for name in {key[0] for key in own}),
            [samples.kinds[key] for key in own if key in samples.kinds],
        )
        for kind, own in keys.items()
    ]


def _communicator(
    kind: Kind, calls: int, communicators: int, timed: list[KindSamples]
) -> CommunicatorRow:
    role, ranks, function, size_bytes, datatype = kind
    if not timed:
        return CommunicatorRow(
            role, ranks, communicators, function, size_bytes, datatype, calls,
            None, None, None, None, None, exact=False,
        )  # fmt: skip
    times = np.concatenate([samples.times_ns for samples in timed])
    waits = np.concatenate([samples.waits_ns for samples in timed])
    median, p99 = percentiles(times)
    factor = bus_factor(function, ranks)
    exact = all(samples.exact for samples in timed)
    busbw = None
    if factor is not None and exact and size_bytes != NONE:
        busbw = bandwidth_gbs(size_bytes * factor, median)
    return CommunicatorRow(
        role, ranks, communicators, function, size_bytes, datatype, calls,
        median, p99, percentiles(waits)[0], busbw, float(times.mean()) * calls, exact,
    )  # fmt: skip


# ---- links ----
def _links(run: Run) -> tuple[LinkRow, ...]:
    """Links between hosts: the median over those of their ranks, because ranks move. Of a run that
    is too long to be replayed at once, sends and receives are those of the part that is.
    """
    transfers = proxy_step_transfers(run)
    if transfers is None and run.p2p.any():
        waiting = waiting_of(Run(replayed_part(run.model).model))
        transfers = None if waiting is None else p2p_transfers(waiting)
    if transfers is None or not len(transfers.time_ns):
        return ()
    links = link_times(transfers, run.node_of)
    places: dict[tuple[str, str], list[int]] = {}
    ends = zip(links.source.tolist(), links.destination.tolist(), strict=True)
    for place, (source, destination) in enumerate(ends):
        hosts = run.host_of.get(source, ""), run.host_of.get(destination, "")
        if all(hosts):
            places.setdefault(hosts, []).append(place)
    rows = [
        LinkRow(
            *hosts,
            slowness=float(np.median(links.slowness[own])),
            operations=int(links.operations[own].sum()),
            busy_ns=float(links.busy_ns[own].sum()),
        )
        for hosts, own in places.items()
    ]
    return _largest(rows, _MOST_LINKS, lambda row: row.busy_ns)


# ---- modules ----
def _modules(run: Run) -> tuple[ModuleRow, ...]:
    """Operations by module; none where the program named none."""
    names = run.model.module_names
    if not run.model.has_context or not names:
        return ()
    module = np.asarray(run.operations["module"])
    rows = np.flatnonzero(run.current & (module != NONE))
    own = module[rows].astype(np.int64)
    duration, wait = run.column("duration_ns", rows), run.column("wait_ns", rows)
    timed = duration != NONE

    def sums(values: Ints) -> list[int]:
        totals = np.bincount(own, np.maximum(values, 0), minlength=len(names))
        return [int(total) for total in totals]

    table = zip(
        names, sums(np.ones_like(own)), sums(timed), sums(duration), sums(wait), strict=True
    )
    kept = [ModuleRow(*values) for values in table if values[1]]
    return _largest(kept, _MOST_MODULES, lambda row: float(row.total_ns))
