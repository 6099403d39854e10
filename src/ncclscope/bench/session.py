"""A benchmark from start to end: ranks are started, coordinated, and their results handed on."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ncclscope.bench.coordinator import Coordinator, RankError, listen
from ncclscope.bench.libraries import Libraries
from ncclscope.bench.messages import Message
from ncclscope.bench.nccl import UNIQUE_ID_BYTES
from ncclscope.bench.plan import Case, Plan, cases, left_out, next_batch
from ncclscope.bench.rank_placement import RankPlacement
from ncclscope.bench.ranks import supervised
from ncclscope.bench.results import Device, Result, Session, result_of
from ncclscope.nccl.releases import release_of_code

OnSession = Callable[[Session], None]
OnResult = Callable[[Result], None]


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How the ranks are started."""

    libraries: Libraries
    places: RankPlacement
    devices: Mapping[int, int]  # by rank
    share: bool = False
    timeout_s: float = 120.0
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


class CoordinatorReplies:
    """What the ranks are answered, point by point, and what they hand in on the way."""

    def __init__(self, plan: Plan, ranks: int, on_session: OnSession, on_result: OnResult) -> None:
        self._plan, self._ranks = plan, ranks
        self._on_session, self._on_result = on_session, on_result
        self._cases: Iterator[Case] = (
            case for world in plan.worlds or (ranks,) for case in cases(plan, world)
        )

    def __call__(self, point: str, said: list[Message]) -> Message:
        """One answer for all."""
        if point == "hello":
            return Message(self._plan.as_json())
        if point == "open":
            self._on_session(self._session(said))
        elif point == "id":
            if len(said[0].data) != UNIQUE_ID_BYTES:
                raise RankError("rank 0 made no id for a communicator")
            return Message({}, said[0].data)
        elif point == "pace":
            return Message({"calls": self._pace(said)})
        elif point == "case":
            case = next(self._cases)
            data = [message.data for message in said]
            self._on_result(
                result_of(case, self._plan.grouped, [message.said for message in said], data)
            )
        return Message()

    def _pace(self, said: list[Message]) -> int:
        """How many calls come next, by what the slowest rank says."""
        measured = [message.said for message in said if "done" in message.said]
        return next_batch(
            self._plan,
            max(int(one["done"]) for one in measured),
            max(float(one["spent_ns"]) for one in measured),
            max(float(one["call_ns"]) for one in measured),
        )

    def _session(self, said: list[Message]) -> Session:
        answers = [message.said for message in said]
        devices = tuple(
            Device(
                rank,
                str(one["host"]),
                int(one["pid"]),
                int(one["device"]),
                str(one["name"]),
                str(one["bus_id"]),
                str(one["reference"]),
                int(one["beyond_ns"]),
                int(one["launch_ns"]),
            )
            for rank, one in enumerate(answers)
        )
        notes = [
            note
            for world in self._plan.worlds or (self._ranks,)
            for note in left_out(self._plan, world)
        ]
        versions = sorted({int(one["nccl"]) for one in answers})
        if len(versions) > 1:
            shown = ", ".join(".".join(map(str, release_of_code(code))) for code in versions)
            notes.append(f"ranks use different releases of NCCL: {shown}")
        return Session(
            devices,
            versions[0],
            max(int(one["cuda"]) for one in answers),
            next((str(one["simulation"]) for one in answers if one["simulation"]), ""),
            tuple(dict.fromkeys(notes)),
        )


def run_session(
    plan: Plan, start: LaunchOptions, on_session: OnSession, on_result: OnResult
) -> None:
    """Measures everything; results come case by case. Raises what kept it from its end.

    A process that does not lead starts its ranks and waits for them.
    """
    places = start.places
    server: socket.socket | None = None
    port = places.port
    if places.leads:
        server = listen(places.host, places.port)
        port = server.getsockname()[1]
    with supervised() as ranks:
        ranks.start(
            places, port, start.libraries, start.devices, start.share, start.timeout_s,
            start.environment,
        )  # fmt: skip
        if server is not None:
            answers = CoordinatorReplies(plan, places.ranks, on_session, on_result)
            Coordinator(
                server, places.ranks, places.token, start.timeout_s, answers, ranks.fallen
            ).run()
        trouble = ranks.wait(start.timeout_s if places.leads else None)
        if trouble:
            raise RankError(trouble)
