"""Hosts that are late again and again: a statistic over jobs, never from one.

In each job, the origins are the hosts in which the most waiting began: the one with the most and
those with at least half of that, where it is a notable part of the job's time. If all hosts are
alike, k of n hosts are the origins of a job by chance with k/n for each. If most hosts are origins,
a job says little, and it counts for little.

A place in a job can be late itself, as that of rank 0, which writes checkpoints. So chance is at
least the share of jobs in which other hosts were an origin at the same place.

    host b is an origin in 9 of 10 jobs of 64 hosts, one origin a job: chance gives 0.16 jobs
    the chance of 9 or more is below exp(-10 KL(0.9, 1/64)) = 4e-15; times 64 hosts it is 3e-13

The bound is Hoeffding's. It holds also if chances differ from job to job.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ncclscope.history.reader import History
from ncclscope.history.tables import HOSTS, HostRow

LEAST_JOBS = 5  # of a host, before anything is said about it
MOST_CHANCE = 0.001  # that any host of the history is named if all are alike
_NOTABLE = 0.01  # of the time of all ranks: a job with less has no origin
_ALIKE = 0.5  # of the largest: hosts that are origins with it
TIMES_CHANCE = 2.0  # less often is no habit, however sure


# By host: its jobs, in how many it was an origin, how many chance gives, mean share, places.
_QUERY = f"""
, hosts as (
  select name, host, place, origin_ns, job_ns,
         count(*) over job as hosts, max(origin_ns) over job as most_ns
  from rows where origin_ns is not null
  window job as (partition by name)
), origins as (
  select *, most_ns >= {_NOTABLE} * job_ns and most_ns > 0 and origin_ns >= {_ALIKE} * most_ns
            as is_origin
  from hosts where hosts > 1
), chances as (
  select *, avg(is_origin::int) over (partition by name) as chance from origins
), places as (
  select *,
         count(*) over at_place - count(*) over own_at_place as others,
         sum(is_origin::int) over at_place - sum(is_origin::int) over own_at_place as late_others
  from chances
  window at_place as (partition by hosts, place),
         own_at_place as (partition by hosts, place, host)
)
select host, count(*), sum(is_origin::int),
       -- As if others had been there in one more job, which chance decided.
       sum(greatest(chance, (late_others + chance) / (others + 1))),
       avg(origin_ns / greatest(job_ns, 1)), count(distinct (hosts, place))
from places group by host
"""


@dataclass(frozen=True, slots=True)
class HostRecord:
    """What the jobs of a history say about one host."""

    host: str
    jobs: int
    origin_in: int  # of these jobs
    expected: float  # jobs that chance gives
    probability: float  # of this many jobs or more by chance, on any of the hosts: an upper bound
    share: float  # of the time of all ranks that waits because of it, mean over its jobs
    one_place: bool  # always at the same place: it and the place cannot be told apart
    is_late: bool  # again and again


def host_records(history: History) -> list[HostRecord]:
    """Hosts of all jobs whose waiting is known, the least probable first."""
    rows = history.query(HOSTS, _QUERY)
    records = []
    for host, jobs, origin_in, expected, share, places in rows:
        probability = min(len(rows) * tail_bound(origin_in, jobs, expected), 1.0)
        often = origin_in > TIMES_CHANCE * expected and jobs >= LEAST_JOBS
        is_late = often and probability <= MOST_CHANCE
        records.append(
            HostRecord(host, jobs, origin_in, expected, probability, share, places == 1, is_late)
        )
    return sorted(records, key=lambda record: (record.probability, -record.share, record.host))


def origin_hosts(hosts: Sequence[HostRow]) -> set[str]:
    """The hosts in which the most waiting of one job began: _QUERY's rule, for a job that need not
    be in a history.
    """
    known = {row.host: row.origin_ns for row in hosts if row.origin_ns is not None}
    most_ns = max(known.values(), default=0)
    job_ns = max((row.job_ns for row in hosts), default=0)
    if len(known) < 2 or most_ns <= 0 or most_ns < _NOTABLE * job_ns:
        return set()
    return {host for host, origin_ns in known.items() if origin_ns >= _ALIKE * most_ns}


def tail_bound(times: int, jobs: int, expected: float) -> float:
    """An upper bound of the probability of `times` jobs or more, if chance gives `expected`.

    >>> tail_bound(1, 4, 2.0)
    1.0
    >>> tail_bound(3, 3, 1.5)
    0.125
    """
    share, chance = times / jobs, expected / jobs
    if share <= chance:
        return 1.0
    divergence = share * math.log(share / chance) if chance > 0 else math.inf
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - chance))
    return math.exp(-jobs * divergence)
