"""Runs a benchmark: starts ranks, coordinates them, and passes on their results."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.bench.coordinator import Coordinator, RankError, listen
from ncclscope.bench.libraries import Libraries
from ncclscope.bench.messages import Message
from ncclscope.bench.nccl import UNIQUE_ID_BYTES
from ncclscope.bench.plan import Case, Plan, cases, next_batch, omission_notes
from ncclscope.bench.rank_placement import RankPlacement
from ncclscope.bench.ranks import running_ranks
from ncclscope.bench.results import BenchDevice, Result, Session, result_of
from ncclscope.nccl.releases import release_of_code, text_of

OnSession = Callable[[Session], None]
OnResult = Callable[[Result], None]


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How the ranks are started."""

    libraries: Libraries
    placement: RankPlacement
    devices: Mapping[int, int]  # by rank
    share: bool = False
    timeout_s: float = 120.0
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    prefix: tuple[str, ...] = ()  # a command that starts each rank, such as nsys
    directory: Path | None = None  # where ranks run; None: here


class CoordinatorReplies:
    """Replies to ranks at each point, and takes their results."""

    def __init__(self, plan: Plan, ranks: int, on_session: OnSession, on_result: OnResult) -> None:
        self._plan, self._ranks = plan, ranks
        self._on_session, self._on_result = on_session, on_result
        self._cases: Iterator[Case] = (
            case for world in plan.worlds or (ranks,) for case in cases(plan, world)
        )

    def __call__(self, point: str, messages: list[Message]) -> Message:
        """The reply to all ranks at a point."""
        if point == "start":
            return Message(self._plan.as_json())
        if point == "open":
            self._on_session(self._session(messages))
        elif point == "id":
            if len(messages[0].data) != UNIQUE_ID_BYTES:
                raise RankError("rank 0 made no id for a communicator")
            return Message({}, messages[0].data)
        elif point == "pace":
            return Message({"calls": self._next_batch(messages)})
        elif point == "case":
            case = next(self._cases)
            fields = [message.fields for message in messages]
            data = [message.data for message in messages]
            self._on_result(result_of(case, self._plan.grouped, fields, data))
        return Message()

    def _next_batch(self, messages: list[Message]) -> int:
        """Number of calls in the next batch, by the slowest rank."""
        measuring = [message.fields for message in messages if "done" in message.fields]
        return next_batch(
            self._plan,
            max(int(fields["done"]) for fields in measuring),
            max(float(fields["spent_ns"]) for fields in measuring),
            max(float(fields["call_ns"]) for fields in measuring),
        )

    def _session(self, messages: list[Message]) -> Session:
        ranks = [message.fields for message in messages]
        devices = tuple(
            BenchDevice(
                rank,
                str(fields["host"]),
                int(fields["pid"]),
                int(fields["device"]),
                str(fields["name"]),
                str(fields["bus_id"]),
                str(fields["reference"]),
                int(fields["beyond_ns"]),
                int(fields["launch_ns"]),
                str(fields["posed_host"]),
            )
            for rank, fields in enumerate(ranks)
        )
        notes = [
            note
            for world in self._plan.worlds or (self._ranks,)
            for note in omission_notes(self._plan, world)
        ]
        versions = sorted({int(fields["nccl"]) for fields in ranks})
        if len(versions) > 1:
            releases = ", ".join(text_of(release_of_code(code)) for code in versions)
            notes.append(f"ranks use different releases of NCCL: {releases}")
        return Session(
            devices,
            versions[0],
            max(int(fields["cuda"]) for fields in ranks),
            next((str(fields["simulation"]) for fields in ranks if fields["simulation"]), ""),
            tuple(dict.fromkeys(notes)),
        )


def run_session(
    plan: Plan, options: LaunchOptions, on_session: OnSession, on_result: OnResult
) -> None:
    """Measures all cases of a plan, and calls `on_result` after each. Raises if a rank fails.

    A process that does not lead starts its ranks and waits for them.
    """
    placement = options.placement
    server: socket.socket | None = None
    port = placement.port
    if placement.leads:
        server = listen(placement.host, placement.port)
        port = server.getsockname()[1]
    with running_ranks() as ranks:
        ranks.start(
            placement, port, options.libraries, options.devices, options.share, options.timeout_s,
            options.environment, options.prefix, options.directory,
        )  # fmt: skip
        if server is not None:
            Coordinator(
                server,
                placement.ranks,
                placement.token,
                options.timeout_s,
                CoordinatorReplies(plan, placement.ranks, on_session, on_result),
                ranks.first_failure,
            ).run()
        failure = ranks.wait(options.timeout_s if placement.leads else None)
        if failure:
            raise RankError(failure)
