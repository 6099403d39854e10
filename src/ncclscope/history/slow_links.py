"""Links that are slow again and again: the statistic of late_hosts.py, over links between hosts.

In each job, a link is slow if its transfers took half as long again as those of the median link. If
all links are alike, k slow links of n fall on each link with k/n. A link that always joins the same
ranks cannot be told from what these ranks do; answers say so.
"""

from dataclasses import dataclass

from ncclscope.analysis.waiting.exchange_groups import SLOWER
from ncclscope.diagnose.rules.slow_link import LEAST_OPERATIONS
from ncclscope.history.late_hosts import LEAST_JOBS, MOST_CHANCE, TIMES_CHANCE, tail_bound
from ncclscope.history.reader import History
from ncclscope.history.tables import LINKS

_LEAST_LINKS = 5  # of a job: with fewer, most of them may be slow

_QUERY = f"""
, chosen as materialized (
  select name, source, destination, slowness, slowness >= {SLOWER} as is_slow
  from rows where operations >= {LEAST_OPERATIONS}
), jobs as (
  select name, count(*) as links, avg(is_slow::int) as chance from chosen group by name
)
select source, destination, count(*), sum(is_slow::int), sum(chance), median(slowness)
from chosen join jobs using (name) where links >= {_LEAST_LINKS} group by source, destination
"""


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """What the jobs of a history say about the link from one host to another."""

    source: str
    destination: str
    jobs: int
    slow_in: int  # of these jobs
    expected: float  # jobs that chance gives
    probability: float  # of this many jobs or more by chance, on any of the links: an upper bound
    slowness: float  # times the median link; median over its jobs


def slow_links(history: History) -> list[LinkRecord]:
    """Links that are slow again and again, the least probable first."""
    rows = history.query(LINKS, _QUERY)
    records = [
        LinkRecord(
            source, destination, jobs, slow_in, expected,
            min(len(rows) * tail_bound(slow_in, jobs, expected), 1.0), slowness,
        )
        for source, destination, jobs, slow_in, expected, slowness in rows
        if jobs >= LEAST_JOBS and slow_in > TIMES_CHANCE * expected
    ]  # fmt: skip
    slow = [record for record in records if record.probability <= MOST_CHANCE]
    return sorted(slow, key=lambda record: (record.probability, record.source, record.destination))
