"""Jobs whose waiting is known exactly: kernels of all ranks computed from their delays."""

from collections.abc import Callable
from dataclasses import dataclass

from ncclscope.analysis.run import Run
from tests.support.model_builders import model, operation, world

HOST_NS, LAUNCH_NS, COMPUTE_NS, WIRE_NS = 50_000, 10_000, 400_000, 100_000
Delay = Callable[[int, int], int]  # ns by rank and step


@dataclass
class MadeJob:
    """Collectives of ranks that call, launch, and synchronise after each step."""

    ranks: int = 4
    steps: int = 30
    groups: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (("world", ()),)
    host_ns: Delay = lambda rank, step: 0  # later calls of a step
    wire_ns: Callable[[str, int], int] = lambda name, step: 0  # longer transfers
    error_ns: int = 1_000
    per_node: int = 8

    def run(self) -> Run:
        """The run of this job."""
        names, members = [], []
        for name, made in self.groups:
            for number, ranks in enumerate(made or (tuple(range(self.ranks)),)):
                names.append(name if not number else f"{name}#{number + 1}")
                members.append(ranks)
        rows: list[dict[str, object]] = []
        instances: list[dict[str, object]] = []
        ended = [0] * self.ranks
        for step in range(self.steps):
            called = [ended[r] + COMPUTE_NS + self.host_ns(r, step) for r in range(self.ranks)]
            for row, (name, ranks) in enumerate(zip(names, members, strict=True)):
                starts = {}
                for rank in ranks:
                    called[rank] += HOST_NS
                    starts[rank] = max(called[rank] + LAUNCH_NS, ended[rank])
                last = max(starts.values()) + WIRE_NS + self.wire_ns(name, step)
                for place, rank in enumerate(ranks):
                    rows.append(
                        operation(
                            communicator=row, rank=place, global_rank=rank, process=rank,
                            function="AllReduce", algorithm="RING", source="gpu", stream=7,
                            size_bytes=1 << 20, call_ns=called[rank],
                            launch_end_ns=called[rank] + LAUNCH_NS // 2, start_ns=starts[rank],
                            end_ns=last, duration_ns=last - starts[rank], instance=len(instances),
                        )
                    )  # fmt: skip
                    ended[rank] = last
                    called[rank] = last  # the host waits for each collective
                instances.append(
                    {"communicator": row, "form": "collective", "function": "AllReduce",
                     "size_bytes": 1 << 20, "error_ns": self.error_ns, "mismatch": 0,
                     "ranks_timed": len(ranks), "last_start_ns": max(starts.values())}
                )  # fmt: skip
        communicators = [
            {"id": row + 1, "name_inferred": 0, "ranks": len(ranks), "nodes": 1}
            for row, ranks in enumerate(members)
        ]
        return Run(model(rows, instances, communicators, names, world(self.ranks, self.per_node)))
