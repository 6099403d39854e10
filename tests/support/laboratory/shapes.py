"""How kinds of jobs are put together: a load, healthy and with faults."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.faults import Fault
from tests.support.laboratory.mesh import Mesh, mesh_program
from tests.support.laboratory.programs import (
    Buckets,
    Experts,
    ManyCommunicators,
    Ring,
    Serving,
    buckets_program,
    experts_program,
    many_communicators_program,
    ring_program,
    serving_program,
)
from tests.support.laboratory.truth import Kind

Faults = dict[str, tuple[Fault, ...]]
HEALTHY = "healthy"
_PROGRAMS: dict[type, Callable[[Job, Any], Program]] = {
    Mesh: mesh_program,
    Experts: experts_program,
    Ring: ring_program,
    Buckets: buckets_program,
    ManyCommunicators: many_communicators_program,
    Serving: serving_program,
}


class Load(Protocol):
    """What a job does, in numbers."""

    @property
    def ranks(self) -> int:
        """Of the job."""


def shape(
    name: str,
    maker: Callable[[Job, Any], Program] | None,
    load: Load,
    faults: Faults,
    **options: Any,
) -> Iterator[Kind]:
    """A shape healthy, and with each of the faults; `maker`: None for a load that has its own."""
    make = maker or _PROGRAMS[type(load)]
    healthy = Kind(f"{name}, {HEALTHY}", load.ranks, lambda job: make(job, load), **options)
    yield healthy
    for what, planted in faults.items():
        yield replace(healthy, name=f"{name}, {what}", faults=planted)


def host(rank: int, ms: float, **more: Any) -> Fault:
    """A host that is late in every step."""
    return Fault("host", rank, ms=ms, **more)


def gpu(rank: int, factor: float, **more: Any) -> Fault:
    """A slow GPU."""
    return Fault("gpu", rank, factor=factor, **more)


def launch(rank: int, ms: float, **more: Any) -> Fault:
    """Slow launches."""
    return Fault("launch", rank, ms=ms, **more)


def link(a: int, b: int, factor: float, **more: Any) -> Fault:
    """A slow link."""
    return Fault("transfer", link=(a, b), factor=factor, **more)
