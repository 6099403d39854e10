"""Which host is late again and again, over jobs made by chance with a bad host planted."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.history.late_hosts import LEAST_JOBS, HostRecord, host_records, tail_bound
from ncclscope.history.reader import History
from ncclscope.history.tables import JobSums
from ncclscope.history.writer import write_job
from ncclscope.model.sql_views import open_connection
from tests.support.history_jobs import fleet, made_job

HOSTS = 64
Made = Callable[[int, np.random.Generator], JobSums]


def records_of(path: Path, jobs: int, made: Made, seed: int = 1) -> dict[str, HostRecord]:
    """Hosts after so many jobs. Only tables that the statistic reads are written."""
    generator = np.random.default_rng(seed)
    with open_connection() as connection:
        for number in range(jobs):
            sums = replace(made(number, generator), communicators=(), links=())
            write_job(path, sums, connection)
    return {record.host: record for record in host_records(History(path))}


def late(records: dict[str, HostRecord]) -> list[str]:
    return [host for host, record in records.items() if record.is_late]


def shuffled(generator: np.random.Generator, hosts: Iterable[str]) -> list[str]:
    return [str(host) for host in generator.permutation(list(hosts))]


def test_a_bad_host_is_named_and_nobody_else(tmp_path: Path) -> None:
    records = records_of(
        tmp_path, 50, lambda n, g: made_job(n, shuffled(g, fleet(HOSTS)), g, "node017", 0.5)
    )
    assert late(records) == ["node017"]
    bad = records["node017"]
    assert bad.jobs == 50
    assert 12 < bad.origin_in < 38
    assert bad.expected < 2
    assert not bad.one_place


def test_a_bad_host_is_named_from_jobs_on_some_of_the_hosts(tmp_path: Path) -> None:
    def made(number: int, generator: np.random.Generator) -> JobSums:
        return made_job(number, shuffled(generator, fleet(HOSTS))[:16], generator, "node017", 0.8)

    records = records_of(tmp_path, 60, made)
    assert late(records) == ["node017"]
    assert records["node017"].jobs < 60


def test_two_bad_hosts_are_named(tmp_path: Path) -> None:
    def made(number: int, generator: np.random.Generator) -> JobSums:
        hosts = shuffled(generator, fleet(16))
        return made_job(number, hosts, generator, f"node00{number % 2}", 0.9)

    assert sorted(late(records_of(tmp_path, 40, made))) == ["node000", "node001"]


@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_named_where_all_hosts_are_alike(tmp_path: Path, seed: int) -> None:
    """Steps vary so much that the slowest host is often notable."""

    def made(number: int, generator: np.random.Generator) -> JobSums:
        hosts = shuffled(generator, fleet(8))
        return made_job(number, hosts, generator, str(generator.choice(hosts)), 0.9)

    records = records_of(tmp_path, 40, made, seed)
    assert sum(record.origin_in for record in records.values()) > 20
    assert late(records) == []


def test_nobody_is_named_before_it_had_enough_jobs(tmp_path: Path) -> None:
    def made(number: int, generator: np.random.Generator) -> JobSums:
        return made_job(number, fleet(HOSTS), generator, "node017", 1.0)

    records = records_of(tmp_path, LEAST_JOBS - 1, made)
    assert records["node017"].origin_in == LEAST_JOBS - 1
    assert late(records) == []


def test_the_place_of_rank_0_is_not_taken_for_its_host(tmp_path: Path) -> None:
    """The first host of every job is slow, and one host is the first in a third of the jobs."""

    def made(number: int, generator: np.random.Generator) -> JobSums:
        hosts = shuffled(generator, fleet(16))
        if number % 3 == 0:
            hosts.remove("node005")
            hosts.insert(0, "node005")
        return made_job(number, hosts, generator, first_slower=0.1)

    records = records_of(tmp_path, 60, made)
    assert records["node005"].origin_in >= 20
    assert late(records) == []


def test_a_host_that_always_has_the_same_place_is_named_with_that(tmp_path: Path) -> None:
    records = records_of(tmp_path, 10, lambda n, g: made_job(n, fleet(HOSTS), g, "node017", 1.0))
    assert late(records) == ["node017"]
    assert records["node017"].one_place


def test_the_bound_is_one_unless_a_host_is_late_more_often_than_expected() -> None:
    assert tail_bound(1, 10, 1.0) == 1.0
    assert tail_bound(0, 10, 0.0) == 1.0
    assert tail_bound(10, 10, 5.0) == pytest.approx(2**-10)
    # The exact probability of 5 or more of 10 with 0.1 each is 0.0016.
    assert 0.0016 < tail_bound(5, 10, 1.0) < 0.01
