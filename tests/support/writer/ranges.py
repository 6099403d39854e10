"""Ranges around the calls of a thread, planted step by step."""

from dataclasses import dataclass

import numpy as np

from ncclscope.capture import dtypes, layout
from tests.support.writer.meta import Meta
from tests.support.writer.slots import Ints, Placed
from tests.support.writer.spec import SyntheticSpec

_STEP_NS = 10  # between two pushes, or two pops
_CALL_END_NS = 19_050  # after a call it has returned; the next one comes at 20,000
_BETWEEN = 40  # ranges that begin between two calls, at most


@dataclass(frozen=True)
class _Planned:
    """A range of one step, at its place among the slots of the thread."""

    place: int
    which: int  # range of the spec
    step: int


class CallerRanges:
    """Plants the ranges of a thread that calls NCCL. `calls_ns`: its calls, -1 where there is none."""

    def __init__(self, spec: SyntheticSpec, calls_ns: Ints, base: int, meta: Meta) -> None:
        assert len(spec.ranges) <= _BETWEEN
        self._ranges, self._calls = spec.ranges, spec.calls_per_step
        self._calls_ns, self._base, self._meta = calls_ns, base, meta
        self._newest: dict[int, int] = {}  # handle of the newest instance, by range
        self._planned: list[_Planned] = []

    def around(self, lengths: Ints, number: Ints) -> tuple[Ints, Ints]:
        """Slots that each call takes with the ranges around it, and the first of its own."""
        before = np.zeros(len(lengths), np.int64)
        after = np.zeros(len(lengths), np.int64)
        call = number % self._calls
        for one in self._ranges:
            before += call == one.first
            after += (call == self._calls - 1) & (one.first == self._calls)
        total = lengths + before + after
        first = np.cumsum(total) - total + before
        self._planned = []
        for row in np.flatnonzero(before + after).tolist():
            step, at = divmod(int(number[row]), self._calls)
            here = [w for w, one in enumerate(self._ranges) if one.first == at]
            behind = [w for w, one in enumerate(self._ranges) if one.first == self._calls]
            places = [int(first[row]) - len(here) + n for n in range(len(here))]
            self._planned += [_Planned(*pair, step) for pair in zip(places, here, strict=True)]
            if at == self._calls - 1:
                end = int(first[row]) + int(lengths[row])
                self._planned += [_Planned(end + n, w, step) for n, w in enumerate(behind)]
        return total, first

    def put(self, placed: Placed) -> None:
        """Fills the slots of what `around` made room for."""
        slots = placed.out.view(dtypes.OURS.dtypes["Range"])
        for planned in self._planned:
            one = self._ranges[planned.which]
            row, index = int(placed.row[planned.place]), int(placed.index[planned.place])
            start_ns, end_ns = self._times(planned)
            states = layout.STATE_STOPPED if end_ns >= 0 else 0
            slot = slots[row : row + 1]
            slot["kind"], slot["check"] = layout.KINDS["Range"], index & 0xFFFFFFFF
            slot["states"] = states | (layout.STATE_FIRST if one.mark else 0)
            slot["chan"] = one.source
            slot["t0"], slot["t1"] = start_ns, max(end_ns, 0)
            slot["text"] = self._meta.range_text(one.label(planned.step))
            slot["parent"] = self._parent(planned.which)
            if not one.mark:
                self._newest[planned.which] = self._base | index

    def _parent(self, which: int) -> int:
        """The innermost range before it in the list that holds it."""
        one = self._ranges[which]
        last = one.last if one.last >= 0 else one.first - 1
        for number in range(which - 1, -1, -1):
            outer = self._ranges[number]
            if outer.first <= one.first <= outer.last + 1 and outer.last >= last and not outer.mark:
                inside = one.last >= 0 or one.first <= outer.last
                if inside:
                    return self._newest.get(number, 0)
        return 0

    def _times(self, planned: _Planned) -> tuple[int, int]:
        """Start and end; an end of -1: it never ended."""
        one, which = self._ranges[planned.which], planned.which
        base = planned.step * self._calls
        calls = self._calls_ns[base : base + self._calls]
        if one.first == self._calls:
            start = int(calls[-1]) + _CALL_END_NS + (_BETWEEN + which) * _STEP_NS
        else:
            start = int(calls[one.first]) - (_BETWEEN - which) * _STEP_NS - round(one.ms * 1e6)
        if one.mark:
            return start, start
        if one.last < 0:
            return start, start + max(round(one.ms * 1e6), 50)
        if calls[one.last] < 0:
            return start, -1
        return start, int(calls[one.last]) + _CALL_END_NS + (_BETWEEN - which) * _STEP_NS
