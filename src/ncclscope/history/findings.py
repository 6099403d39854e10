"""Findings about a job from the jobs before it: slower than equal ones, a host or link that is late
again and again.

Kinds of calls are evidence only: with many of them, some differ by chance.
"""

from pathlib import Path
from shlex import quote

from ncclscope.analysis.waiting import exchange_groups
from ncclscope.diagnose.comparison_verdict import SLOWER
from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.history.difference import (
    LAST_EQUAL,
    WAITING,
    JobDifference,
    MeasureChange,
    difference_of_sums,
    earlier_jobs,
)
from ncclscope.history.late_hosts import HostRecord, host_records, origin_hosts
from ncclscope.history.slow_links import LinkRecord, slow_links
from ncclscope.history.tables import JobSums
from ncclscope.humanize import duration, percent, plural, printable

FAMILY = "history"
_LAST_OF_HOSTS, _LAST_OF_LINKS = 1000, 100  # jobs
_MOST_LINKS, _MOST_KINDS = 5, 3


def history_findings(
    directory: Path,
    sums: JobSums,
    ranks_of: dict[str, tuple[int, ...]],
    capture: Path,
    equal_jobs: int | None = None,
) -> list[Finding]:
    """What earlier jobs of a history say about this job. `ranks_of`: its global ranks by host;
    `equal_jobs`: with how many it is compared, if not with LAST_EQUAL.
    """
    changed, not_whole = difference_of_sums(directory, sums, equal_jobs or LAST_EQUAL)
    command = f"ncclscope compare --history {quote(str(directory))} {quote(str(capture))}"
    command += f" --equal-jobs {equal_jobs}" if equal_jobs else ""
    findings = [*_against_equal_jobs(changed, not_whole, command)]
    history = earlier_jobs(directory, sums, _LAST_OF_HOSTS)
    origins = origin_hosts(sums.hosts)
    for record in host_records(history):
        if record.is_late and record.host in ranks_of:
            findings.append(_late_host(record, record.host in origins, ranks_of, directory))
    history = earlier_jobs(directory, sums, _LAST_OF_LINKS)
    own_links = {(row.source, row.destination): row.slowness for row in sums.links}
    slow = [link for link in slow_links(history) if (link.source, link.destination) in own_links]
    for link in slow[:_MOST_LINKS]:
        slowness = own_links[link.source, link.destination]
        findings.append(_slow_link(link, slowness, ranks_of, directory))
    return findings


# ---- the job ----
def _against_equal_jobs(changed: JobDifference, not_whole: int, command: str) -> list[Finding]:
    """That the job is slower, or why it was not judged; nothing where it is neither. `command`:
    shows the numbers.
    """
    left_out = (
        (Evidence(f"left out of the history: {plural(not_whole, 'file')}, not whole"),)
        if not_whole
        else ()
    )
    equal = plural(len(changed.equal), "equal job")
    if changed.reason:
        return [
            Finding(
                FAMILY,
                INFO,
                f"the job cannot be held against its past: the history has {equal} from before",
                f"{changed.reason}; jobs are equal with the same ranks, recording and kinds of "
                "calls",
                kind="not judged",
                evidence=left_out,
            )
        ]
    if changed.verdict != SLOWER:
        return []
    measure = next(measure for measure in changed.measures if measure.verdict == SLOWER)
    evidence = [_evidence(measure) for measure in changed.measures if measure.verdict == SLOWER]
    slower_kinds = [kind for kind in changed.kinds if kind.verdict == SLOWER][:_MOST_KINDS]
    evidence += [_evidence(kind) for kind in slower_kinds]
    evidence[0] = Evidence(evidence[0].text, evidence[0].facts, command)
    lost = measure.change if measure.name == WAITING else 1 - 1 / measure.change
    return [
        Finding(
            FAMILY,
            WARNING,
            f"the job is slower than the last {equal}: {_in_words(measure)}",
            "other findings may say why; else see what changed since: hosts, program, settings",
            kind="slower",
            confidence=0.9,
            lost_share=lost,
            evidence=(*evidence, *left_out),
        )
    ]


def _in_words(measure: MeasureChange) -> str:
    usual = sum(measure.equal) / len(measure.equal)
    if measure.name == WAITING:
        return (
            f"ranks wait for {percent(measure.value)} of their time, for {percent(usual)} in these"
        )
    return (
        f"{measure.name} takes {duration(measure.value)}, {measure.change:.2f} times the "
        f"{duration(usual)} of these"
    )


def _evidence(measure: MeasureChange) -> Evidence:
    """The range of equal jobs that a number lies beyond."""
    low, high = min(measure.equal), max(measure.equal)
    if measure.name == WAITING:
        numbers = percent(measure.value), percent(low), percent(high)
    else:
        numbers = duration(measure.value), duration(low), duration(high)
    facts = {
        "value": measure.value,
        "equal": list(measure.equal),
        "change": measure.change,
        "interval": [measure.low, measure.high],
    }
    text = f"{printable(measure.name)}: {numbers[0]}; in equal jobs {numbers[1]} to {numbers[2]}"
    return Evidence(text, facts)


# ---- hosts and links ----
def _late_host(
    record: HostRecord, again: bool, ranks_of: dict[str, tuple[int, ...]], directory: Path
) -> Finding:
    place = Evidence("it always had the same ranks: its place in the job may be the cause")
    facts = {
        "jobs": record.jobs,
        "origin_in": record.origin_in,
        "expected": record.expected,
        "probability": record.probability,
    }
    command = f"ncclscope history trend {quote(str(directory))} --host {quote(record.host)}"
    now = "and again in this one" if again else "but not in this one"
    return Finding(
        FAMILY,
        WARNING if again else INFO,
        f"host {printable(record.host)} is late again and again: most waiting began on it in "
        f"{record.origin_in:,} of {plural(record.jobs, 'earlier job')}, where chance gives "
        f"{record.expected:.1f}, {now}",
        "test this host and its GPUs, or leave it out of jobs",
        kind="late host",
        ranks=ranks_of[record.host],
        hosts=(record.host,),
        confidence=0.6 if record.one_place else 0.95,
        lost_share=record.share if again else 0.0,
        evidence=(
            Evidence(
                f"{percent(record.share)} of the time of all ranks, in the mean of its jobs",
                facts,
                command,
            ),
            *((place,) if record.one_place else ()),
        ),
    )


def _slow_link(
    record: LinkRecord, slowness: float, ranks_of: dict[str, tuple[int, ...]], directory: Path
) -> Finding:
    ends = record.source, record.destination
    hosts = tuple(dict.fromkeys(ends))
    facts = {
        "jobs": record.jobs,
        "slow_in": record.slow_in,
        "expected": record.expected,
        "probability": record.probability,
        "slowness": slowness,
    }
    command = f"ncclscope history trend {quote(str(directory))} --link {' '.join(map(quote, ends))}"
    return Finding(
        FAMILY,
        WARNING if slowness >= exchange_groups.SLOWER else INFO,
        f"the link from {printable(ends[0])} to {printable(ends[1])} is slow again and again: in "
        f"{record.slow_in:,} of {plural(record.jobs, 'earlier job')}, where chance gives "
        f"{record.expected:.1f}; transfers take {slowness:.2f} times those of the median link in "
        "this job",
        "test the network between these hosts; if they always have the same ranks, these may be "
        "the cause",
        kind="slow link",
        ranks=tuple(sorted(rank for host in hosts for rank in ranks_of.get(host, ()))),
        hosts=hosts,
        confidence=0.8,
        evidence=(
            Evidence(
                f"{record.slowness:.2f} times the median link, in the median of its jobs",
                facts,
                command,
            ),
        ),
    )
