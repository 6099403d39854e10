"""Where waiting of two jobs began, and what of it differs."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.job_samples import JobSamples, Key
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.account import AccountOf
from ncclscope.analysis.waiting.origins import WaitingAccount
from ncclscope.threads import Task

Accounts = list[Task[WaitingAccount | None]]
_MOST = 6
WEIGHT = 0.01  # of a round, or of the run: less does not matter


@dataclass(frozen=True, slots=True)
class OriginChange:
    """Waiting by where it began: of one rank in a round, in ns, by run."""

    name: str  # rank 2, transfers of dp …
    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def difference_ns(self) -> float:
        """How much more of it B has."""
        return float(np.mean(self.b) - np.mean(self.a))


def job_account(job: JobSamples, account_of: AccountOf) -> WaitingAccount | None:
    """Where waiting began, as `report` says it; None where no waiting can be seen."""
    return account_of(job.model, Selection())[0]


def origin_changes(
    first: list[JobSamples],
    second: list[JobSamples],
    rhythm: Key,
    accounts: Accounts,
) -> tuple[OriginChange, ...]:
    """Where waiting began, what differs most first; origins of little waiting are left out.
    `accounts`: of the jobs, the first side's before the second's.
    """
    of_jobs = [
        _waiting_by_origin(job, rhythm, account.result())
        for job, account in zip(first + second, accounts, strict=True)
    ]
    sides = [of_jobs[: len(first)], of_jobs[len(first) :]]
    names = list(dict.fromkeys(name for side in sides for origins in side for name in origins))
    changes = [
        OriginChange(
            name,
            tuple(origins.get(name, 0.0) for origins in sides[0]),
            tuple(origins.get(name, 0.0) for origins in sides[1]),
        )
        for name in names
    ]
    round_ns = np.mean([np.median(job.rounds(rhythm).block_ns) for job in first + second])
    shown = [c for c in changes if max(*c.a, *c.b) > WEIGHT * float(round_ns)]
    return tuple(sorted(shown, key=lambda change: -abs(change.difference_ns))[:_MOST])


def _waiting_by_origin(
    job: JobSamples, rhythm: Key, account: WaitingAccount | None
) -> dict[str, float]:
    """Waiting of one rank in a round, by where it began; start-up is not in a round."""
    if account is None:
        return {}
    share = max(len(job.run.process_of), 1) * max(job.kinds[rhythm].calls, 1)
    origins: dict[str, float] = {}
    for origin in account.origins:
        if origin.communicator is not None:
            name = f"transfers of {job.model.communicator_names[origin.communicator]}"
        else:
            name = f"rank {origin.rank}"
        origins[name] = origins.get(name, 0.0) + origin.waiting_ns / share
    origins["the job's structure"] = account.structure_ns / share
    origins["not known"] = account.unknown_ns / share
    return origins
