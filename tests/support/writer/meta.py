"""A process's metadata, slot by slot."""

from ncclscope.capture import layout
from tests.support.writer.files import NS, Slots, Who
from tests.support.writer.slots import Slot, pack

_TEXT_BYTES = layout.slot_places("Text")["text"].count
_SYNC_ERROR_NS = 40  # half the time that reading the clocks takes


class Meta:
    """Collects metadata slots in their order."""

    def __init__(self, who: Who) -> None:
        self._who = who
        self._slots: list[Slot] = []
        self._strings: dict[str, int] = {}
        self._range_texts: dict[str, int] = {}

    def _append(self, kind: str, **fields: object) -> None:
        check = len(self._slots)
        self._slots.append({"kind": layout.KINDS[kind], "check": check, **fields})

    def slots(self) -> Slots:
        """All of them, as the meta file holds them."""
        return pack(self._slots)

    def text(self, what: int, owner: int, text: str) -> None:
        """A text in as many pieces as it needs."""
        raw = text.encode()
        for offset in range(0, max(len(raw), 1), _TEXT_BYTES):
            piece = raw[offset : offset + _TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
            self._append(
                "Text", what=what, owner=owner, offset=offset, length=len(raw), text=tuple(piece)
            )

    def string(self, text: str | None) -> int:
        """The id of one of NCCL's literals."""
        if text is None:
            return 0
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.text(layout.TEXT_STRING, self._strings[text], text)
        return self._strings[text]

    def range_text(self, text: str) -> int:
        """The number of a range's text."""
        if text not in self._range_texts:
            self._range_texts[text] = len(self._range_texts) + 1
            self.text(layout.TEXT_RANGE, self._range_texts[text], text)
        return self._range_texts[text]

    def communicator(
        self, name: str = "", gpu_uuid: bytes = b"", gpu_bus_id: str = "", **fields: int
    ) -> None:
        """A communicator; `fields` are those of its Comm slot, in full."""
        if gpu_bus_id:
            self.text(layout.TEXT_GPU_BUS_ID, fields["comm"], gpu_bus_id)
        if name:
            self.text(layout.TEXT_COMM_NAME, fields["comm"], name)
        if gpu_uuid:
            self._append("Comm", has_gpu=1, gpu_uuid=tuple(gpu_uuid), **fields)
        else:
            self._append("Comm", **fields)

    def communicator_end(self, comm: int, t_ns: int) -> None:
        """The communicator was finalised."""
        self._append("CommEnd", comm=comm, t0=t_ns)

    def event_clock(self, comm: int, t_ns: int, excess_ns: int, clock: int = 0) -> None:
        """A clock of CUDA events that was calibrated with marker kernels."""
        self._append(
            "EventClock", t0=t_ns, clock=clock, comm=comm, calibrated=1, samples=32,
            excess_median_ns=excess_ns, excess_spread_ns=excess_ns // 2,
            excess_busy_ns=excess_ns, excess_idle_ns=excess_ns,
        )  # fmt: skip

    def syncs(self, first_ns: int, last_ns: int, slots_written: int) -> None:
        """Clock pairs: two at the start, then one a second, the last one behind everything."""
        times = [first_ns, first_ns + NS // 200, *range(first_ns + NS, last_ns + 1, NS)]
        times.append(max(times[-1], last_ns) + NS // 100)
        for t_ns in times:
            written = int(slots_written * min((t_ns - first_ns) / max(last_ns - first_ns, 1), 1))
            self._append(
                "Sync",
                ticks_before=t_ns - _SYNC_ERROR_NS,
                ticks_after=t_ns + _SYNC_ERROR_NS,
                monotonic_ns=t_ns,
                realtime_ns=t_ns + self._who.realtime_offset_ns,
                slots_written=written,
                bytes_written=written * layout.SLOT_BYTES,
            )

    def count(self, counter: str, event: int, value: int) -> None:
        """A counter's value; `event`: the number of NCCL's event bit."""
        self._append("Count", counter=layout.COUNTERS.index(counter), event=event, value=value)

    def end(self, t_ns: int, slots_written: int, comms_open: int = 0) -> None:
        """The process exited by itself."""
        self._append("End", t0=t_ns, slots_written=slots_written, comms_open=comms_open)
