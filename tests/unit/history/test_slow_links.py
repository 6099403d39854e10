"""Which link is slow again and again, over jobs made by chance with a slow link planted."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ncclscope.history.findings import history_findings
from ncclscope.history.late_hosts import LEAST_JOBS
from ncclscope.history.reader import History
from ncclscope.history.slow_links import LinkRecord, slow_links
from ncclscope.history.tables import JobSums
from ncclscope.history.writer import write_job
from ncclscope.model.sql_views import open_connection
from tests.support.history_jobs import fleet, made_job

HOSTS = fleet(16)
SLOW = ("node003", "node004")


def job_with_links(
    number: int, generator: np.random.Generator, share: float, only_links: bool = True
) -> JobSums:
    """A job in which the slow link is slow with this chance, and any other one with 2 %."""
    sums = made_job(number, HOSTS, generator)
    links = tuple(
        replace(row, slowness=2.0 * row.slowness)
        if generator.random() < (share if (row.source, row.destination) == SLOW else 0.02)
        else row
        for row in sums.links
    )
    return replace(sums, links=links, **({"communicators": (), "hosts": ()} if only_links else {}))


def history_of(path: Path, jobs: int, share: float) -> Path:
    generator = np.random.default_rng(3)
    with open_connection() as connection:
        for number in range(jobs):
            write_job(path, job_with_links(number, generator, share), connection)
    return path


def records_of(path: Path, jobs: int, share: float) -> list[LinkRecord]:
    return slow_links(History(history_of(path, jobs, share)))


def test_a_slow_link_is_named_and_no_other(tmp_path: Path) -> None:
    (record,) = records_of(tmp_path, 30, 0.6)
    assert (record.source, record.destination) == SLOW
    assert record.jobs == 30
    assert 10 < record.slow_in < 26
    assert record.expected < 4


def test_no_link_is_named_where_all_are_alike(tmp_path: Path) -> None:
    assert records_of(tmp_path, 30, 0.02) == []


def test_no_link_is_named_before_it_had_enough_jobs(tmp_path: Path) -> None:
    assert records_of(tmp_path, LEAST_JOBS - 1, 1.0) == []


def test_a_job_on_the_link_gets_a_finding(tmp_path: Path) -> None:
    history_of(tmp_path, 12, 1.0)
    generator = np.random.default_rng(4)
    ranks_of = {host: (number,) for number, host in enumerate(HOSTS)}
    for share, severity in ((1.0, "warning"), (0.0, "info")):
        sums = job_with_links(20, generator, share, only_links=False)
        findings = history_findings(tmp_path, sums, ranks_of, Path("job20"))
        (finding,) = (finding for finding in findings if finding.kind == "slow link")
        assert (finding.hosts, finding.ranks, finding.severity) == (SLOW, (3, 4), severity)
    elsewhere = replace(sums, links=sums.links[8:])
    findings = history_findings(tmp_path, elsewhere, ranks_of, Path("job20"))
    assert not [finding for finding in findings if finding.kind == "slow link"]
