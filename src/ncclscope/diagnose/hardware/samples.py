"""What samplers wrote beside the run: counters cut to its time, and which GPU is whose."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.diagnose.rule_context import Floats, Ints, RuleContext
from ncclscope.humanize import ranks_in_words
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import Series, SystemSamples, system_of
from ncclscope.system.counters import GPU, NIC, PORT, Device

FAMILY = "machine"
FEWEST = 5  # samples that say anything
Place = tuple[int, Device]  # node and device


class HardwareSamples:
    """The machines of a run."""

    def __init__(self, frame: RuleContext, system: SystemSamples | None = None) -> None:
        self.frame = frame
        self.system = system_of(frame.model) if system is None else system

    def tracks(self, kind: str, counter: str) -> dict[Place, Series]:
        """A counter of all devices of a kind, from right before the run to right after it."""
        found = self.system.of(kind, counter)
        if kind == GPU:
            found = {place: track for place, track in found.items() if self._is_ours(place)}
        return {place: self._cut(track) for place, track in found.items()}

    def _is_ours(self, place: Place) -> bool:
        """Whether a GPU may be the run's: not where its host's ranks are known to be on others."""
        return bool(self.ranks_of.get(place)) or place[0] not in self._nodes_with_ranks

    @cached_property
    def _nodes_with_ranks(self) -> set[int]:
        return {node for (node, _), ranks in self.ranks_of.items() if ranks}

    def _cut(self, track: Series) -> Series:
        begin, end = self.frame.extent
        if begin >= end:  # of mode profile nobody knows
            return track
        first = max(int(np.searchsorted(track.time_ns, begin, "right")) - 1, 0)
        last = int(np.searchsorted(track.time_ns, end)) + 1
        cut = slice(first, last)
        return replace(
            track,
            time_ns=track.time_ns[cut],
            value=track.value[cut],
            sampler=track.sampler[cut],
        )

    @cached_property
    def ranks_of(self) -> dict[Place, tuple[int, ...]]:
        """Ranks by GPU: by uuid or bus id, which are the same to NCCL's process and to NVML."""
        by_id: dict[tuple[int, str], set[int]] = {}
        for row in range(len(self.frame.model.processes)):
            for node, rank, ids in self._rank_states(row):
                for one in ids:
                    by_id.setdefault((node, one), set()).add(rank)
        found = {}
        for track in self.system.tracks:
            facts, node = track.device.facts, track.node
            if track.device.kind != GPU or (node, track.device) in found:
                continue
            ids = _ids(str(facts.get("uuid", "")), str(facts.get("bus_id", "")))
            ranks = next((by_id[node, one] for one in ids if (node, one) in by_id), set())
            found[node, track.device] = tuple(sorted(ranks))
        return found

    def _rank_states(self, row: int) -> Iterable[tuple[int, int, tuple[str, ...]]]:
        """Node, global rank and the names of the GPU of each rank of a process."""
        model = self.frame.model
        members, comms = model.tables["members"], model.tables["communicators"]
        mine = np.flatnonzero(members["process"] == row)
        id_of = np.asarray(comms["id"], np.int64)[
            np.asarray(members["communicator"], np.int64)[mine]
        ]
        of_seat = {
            (int(one), int(rank)): int(global_rank)
            for one, rank, global_rank in zip(
                id_of, members["rank"][mine], members["global_rank"][mine], strict=True
            )
        }
        process = model.processes[row]
        meta = MetadataTail(model.path / process.folder / "meta")
        meta.read()
        for comm in meta.communicators:
            signed = int(np.uint64(comm.id).astype(np.int64))
            rank = of_seat.get((signed, comm.rank), process.global_rank)
            if rank != NONE and comm.gpu_uuid:
                yield process.node, rank, _ids(comm.gpu_uuid, comm.gpu_bus_id)

    # ---- words ----
    def named(self, place: Place) -> str:
        """GPU 3 of node7 (rank 59)"""
        ranks = self.ranks_of.get(place, ())
        shown = f" ({ranks_in_words(ranks)})" if ranks else ""
        return f"{place[1].label} of {self.host(place)}{shown}"

    def host(self, place: Place) -> str:
        """The host of a device."""
        return self.frame.model.nodes[place[0]]

    def command(self, place: Place) -> str:
        """What prints a device's samples."""
        host, device = shlex.quote(self.host(place)), shlex.quote(place[1].name)
        return f"ncclscope dump {self.frame.path} --system --host {host} --device {device}"


def _ids(uuid: str, bus_id: str) -> tuple[str, ...]:
    """Names of a GPU as NVML and CUDA both would write them, were they to agree."""
    plain = uuid.lower().removeprefix("gpu-").replace("-", "")
    domain, _, rest = bus_id.lower().partition(":")
    bus = f"{domain[-4:]}:{rest}" if rest else ""
    return tuple(one for one in (plain, bus) if one)


def links(beside: HardwareSamples, counter: str) -> dict[Place, Series]:
    """A counter of interfaces and ports."""
    return {**beside.tracks(NIC, counter), **beside.tracks(PORT, counter)}


def known(track: Series | None) -> Ints:
    """The values that are known."""
    return np.empty(0, np.int64) if track is None else track.value[track.value != NONE]


def rates(track: Series | None) -> Floats:
    """A total's growth in a second, where it is known."""
    if track is None:
        return np.empty(0)
    found = track.per_second()
    return found[~np.isnan(found)]


def usual(values: Iterable[float]) -> float | None:
    """The median of what others have; None without others."""
    listed = list(values)
    return float(np.median(listed)) if listed else None
