"""A collective's Group stands for its extension where it is the slot before and can hold it; every
field comes back either way.
"""

from pathlib import Path

import pytest

from ncclscope.capture import layout
from ncclscope.capture.reader import open_capture
from tests.support.callback_script import Script
from tests.support.player import dump
from tests.support.transcript_check import Line

CHUNK_SLOTS = 1024
NAMES = {"func": "AllReduce", "dtype": "ncclFloat32", "algo": "RING", "proto": "LL"}


def coll(script: Script, group: int, number: int, **others: int) -> Line:
    """Starts and stops a collective; what it was started with."""
    fields = {"seq": number, "send": f"{0x1000 + number:x}", "recv": f"{0x2000 + number:x}"}
    fields |= {"count": 4, "root": 0, "nch": 1, "nwarps": 8, "group": group, **NAMES}
    script.stop(script.start("Coll", 0, **{"rank": 2} | fields | others))
    return script.lines[-2]


def extensions_in(capture: Path) -> int:
    """How many slots of the log are extensions of collectives."""
    (process,) = open_capture(capture).processes
    return sum(
        int((segment["kind"] == layout.KINDS["CollExt"]).sum())
        for segment in process.slots.segments
    )


def recorded(script: Script, directory: Path) -> tuple[list[Line], int]:
    """The collectives on record, and how many extensions there are."""
    script.finalize()
    events, counters = script.record(directory)
    assert not counters
    colls = [event for event in events if event["event"] == "Coll"]
    return colls, extensions_in(directory / "capture")


def check(found: list[Line], started: list[Line]) -> None:
    for event, line in zip(found, started, strict=True):
        fields = event["fields"]
        assert (fields["sendBuff"], fields["recvBuff"]) == (
            line["send"],
            line["recv"],
        )
        assert fields["rank"] == line["rank"]
        assert fields["seqNumber"] == line["seq"]
        assert fields["parentGroup"] is not None


def test_a_collective_right_after_its_group_needs_no_extension(tmp_path: Path) -> None:
    script = Script(6)
    script.init(rank=2)
    started = []
    for number in range(20):
        group = script.start("Group")
        started.append(coll(script, group, number))
        script.stop(group)
    found, extensions = recorded(script, tmp_path)
    assert extensions == 0
    check(found, started)
    groups = [event["id"] for event in dump(tmp_path / "capture") if event["event"] == "Group"]
    assert [event["fields"]["parentGroup"] for event in found] == groups


@pytest.mark.parametrize("case", ["second", "rank", "tag", "between", "stopped", "other group"])
def test_others_have_one(case: str, tmp_path: Path) -> None:
    script = Script(7)
    script.init(rank=2)
    other = script.start("Group")
    group = script.start("Group")
    if case == "between":
        script.stop(script.start("ProxyCtrl"))
    if case == "stopped":
        script.stop(group)
    others = {"rank": 1} if case == "rank" else {"tag": 5} if case == "tag" else {}
    started = [coll(script, other if case == "other group" else group, 1, **others)]
    if case == "second":
        started.append(coll(script, group, 2))
    found, extensions = recorded(script, tmp_path)
    assert extensions == 1
    check(found, started)
    assert found[-1]["fields"]["userTag"] == others.get("tag", 0)


@pytest.mark.parametrize("before", range(CHUNK_SLOTS - 4, CHUNK_SLOTS + 1))
def test_at_the_end_of_a_chunk(before: int, tmp_path: Path) -> None:
    """A slot of the next chunk has another one before it."""
    script = Script(6)
    script.init(rank=2)
    for _ in range(before):
        script.stop(script.start("ProxyCtrl"))
    group = script.start("Group")
    started = [coll(script, group, 1)]
    script.stop(group)
    found, extensions = recorded(script, tmp_path)
    check(found, started)
    group_is_last = before == CHUNK_SLOTS - 2  # the first slot is the chunk's own
    assert extensions == (1 if group_is_last else 0)


def test_a_group_that_was_written_before_it_knew(tmp_path: Path) -> None:
    """Killed in between: the buffers are not known, the group is."""
    script = Script(6)
    script.init(rank=2)
    group = script.start("Group")
    coll(script, group, 1)
    script.stop(group)
    (found,), _ = recorded(script, tmp_path)
    (log,) = (tmp_path / "capture").glob("*/log.000000")
    content = bytearray(log.read_bytes())
    (place,) = (at for at in range(len(content) % 64, len(content), 64)
                if content[at] == layout.KINDS["Group"] and content[at + 4] == 1)  # fmt: skip
    content[place + 1] &= ~layout.STATE_FIRST
    log.write_bytes(content)
    (event,) = (e for e in dump(tmp_path / "capture") if e["event"] == "Coll")
    assert "sendBuff" not in event["fields"]
    assert "recvBuff" not in event["fields"]
    assert event["fields"]["parentGroup"] == found["fields"]["parentGroup"]
