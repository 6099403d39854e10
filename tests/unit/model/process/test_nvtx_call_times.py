"""Call times of NCCL releases that report no calls, by NCCL's own NVTX ranges."""

from pathlib import Path

import ncclscope
from ncclscope.capture import layout
from tests.support.writer.training import MS, US, PlantedCall, Program

_NONE = PlantedCall(None, None, None)
_NCCL = 3  # number of NCCL's domain in this process
_TIMES = """
select "function", size_bytes, call_ns is not null, enqueue_ns - call_ns, call_end_ns > call_ns
from operations order by enqueue_ns
"""


def _program() -> Program:
    program = Program(0, 1, interface=4)
    program.meta.text(layout.TEXT_DOMAIN, _NCCL, "NCCL")
    return program


def _push(program: Program, text: str) -> None:
    program.push(text, layout.RANGE_NVTX, domain=_NCCL)


def test_works_have_the_times_of_the_ranges_around_them_and_of_their_group(tmp_path: Path) -> None:
    program = _program()
    program.call("AllReduce", 100, _NONE)  # of no range: recorded before the job turned NVTX on
    _push(program, "ncclAllReduce")
    program.call("AllReduce", 200, _NONE)
    program.pop()
    for _ in range(2):
        _push(program, "ncclAllGather")
        program.pop()
        program.wait(MS)
    _push(program, "ncclGroupEnd")
    for count in (300, 400):
        program.call("AllGather", count, _NONE)
    program.pop()
    program.write(tmp_path)
    rows = ncclscope.open(tmp_path).sql(_TIMES).fetchall()
    assert [(row[0], row[2]) for row in rows] == [
        ("AllReduce", False), ("AllReduce", True), ("AllGather", True), ("AllGather", True),
    ]  # fmt: skip
    assert all(row[4] for row in rows[1:])
    inside, first, second = (row[3] for row in rows[1:])
    assert inside < 100 * US
    assert 2 * MS < first < second + MS
    assert second > MS


def test_works_and_ranges_that_do_not_fit_have_no_call_times(tmp_path: Path) -> None:
    program = _program()
    _push(program, "ncclAllGather")  # its work is missing
    program.pop()
    for _ in range(2):
        _push(program, "ncclAllReduce")
        program.pop()
    _push(program, "ncclGroupEnd")
    for _ in range(3):
        program.call("AllReduce", 300, _NONE)
    program.pop()
    program.write(tmp_path)
    assert [row[2] for row in ncclscope.open(tmp_path).sql(_TIMES).fetchall()] == [False] * 3
