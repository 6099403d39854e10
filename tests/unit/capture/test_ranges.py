"""Ranges as a capture holds them: slots, texts, the live page, schemas of payloads."""

import struct
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, STOP_NS, key, number
from ncclscope.capture.live_page import read_live_page
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.range_names import category_names, payload_schemas, payload_values
from ncclscope.capture.redact import Redaction, clean_context, clean_slots
from ncclscope.model.process.events import events_of
from ncclscope.simulation.scenario import Call, Range, Scenario
from ncclscope.simulation.scenario_lines import parse_scenario
from tests.support.writer import write_scenario
from tests.support.writer.files import ProcessFolder, Who, nonce_of
from tests.support.writer.live import live_slots
from tests.support.writer.slots import pack

_CALLS = (Call("world", "AllReduce", 1 << 20),) * 3
_RANGES = (
    Range("step {step}", 0, 2),
    Range("enumerate(DataLoader)", 0, ms=0.5, source=layout.RANGE_RECORD_FUNCTION),
    Range("FSDP::all_gather (blocks.1)", 1, 2),
    Range("done", 2, mark=1),
    Range("Optimizer.step#Adam.step", 3, ms=0.2),
)


def _process(folder: Path, steps: int = 2) -> Process:
    scenario = Scenario(ranks=2, steps=steps, calls=_CALLS, ranges=_RANGES)
    write_scenario(folder, scenario)
    return open_process(next(folder.iterdir()))


def _texts(process: Process, rows: np.ndarray) -> list[str]:
    return [process.range_texts[one] for one in rows.tolist()]


def test_planted_ranges_are_read_with_their_texts_and_sources(tmp_path: Path) -> None:
    process = _process(tmp_path)
    ranges = events_of(process, ("Range",))["Range"]
    read = ranges.read(text=number("text"), source=number("chan"))
    expected = [one.label(step) for step in range(2) for one in _RANGES]
    assert sorted(_texts(process, read["text"])) == sorted(expected)
    sources = dict(zip(_texts(process, read["text"]), read["source"].tolist(), strict=True))
    assert sources["enumerate(DataLoader)"] == layout.RANGE_RECORD_FUNCTION
    assert sources["step 0"] == layout.RANGE_NVTX


def test_the_parent_of_a_range_is_the_range_around_it(tmp_path: Path) -> None:
    process = _process(tmp_path, steps=1)
    ranges = events_of(process, ("Range",))["Range"]
    read = ranges.read(text=number("text"), parent=key("parent"))
    texts = _texts(process, read["text"])
    parents = ranges.find(read["parent"])
    names = {text: texts[at] if at >= 0 else "" for text, at in zip(texts, parents, strict=True)}
    assert names == {
        "step 0": "",
        "enumerate(DataLoader)": "step 0",
        "FSDP::all_gather (blocks.1)": "step 0",
        "done": "FSDP::all_gather (blocks.1)",
        "Optimizer.step#Adam.step": "",
    }


def test_ranges_hold_their_calls_in_slot_order_and_by_time(tmp_path: Path) -> None:
    process = _process(tmp_path, steps=1)
    events = events_of(process, ("Range", "CollApi"))
    calls = events["CollApi"]
    text = _texts(process, events["Range"].one(number("text")))
    inner = text.index("FSDP::all_gather (blocks.1)")
    began, ended = (events["Range"].one(column)[inner] for column in (START_NS, STOP_NS))
    inside = (calls.one(START_NS) > began) & (calls.one(STOP_NS) < ended)
    assert inside.tolist() == [False, True, True]
    assert (calls.keys > events["Range"].keys[inner]).tolist() == [False, True, True]


def test_a_capture_with_ranges_is_not_damaged(tmp_path: Path) -> None:
    process = _process(tmp_path)
    assert (process.damage.bad_slots, process.damage.torn_bytes) == (0, 0)


def test_a_scenario_with_ranges_survives_being_written_as_text() -> None:
    text = "call = world AllReduce 1M\nrange = text=Optimizer.step%23Adam%20W first=1 ms=0.5"
    assert parse_scenario(text).ranges == (Range("Optimizer.step#Adam W", 1, ms=0.5),)


def test_the_live_page_has_steps_and_open_ranges(tmp_path: Path) -> None:
    who = Who("h", 1, "b", 10**9, 0, "trace", nonce_of(0), {})
    folder = ProcessFolder(tmp_path, who)
    body = [
        {"kind": layout.KINDS["LiveStep"], "steps": 812, "phase": layout.PHASE_BACKWARD},
        {"kind": layout.KINDS["Updates"], "check": 7, "first": 7, "stream": 3, "count": 1},
        {"kind": layout.KINDS["Range"], "check": 7, "text": 5},
    ]
    folder.write("live", layout.FILE_LIVE, pack(live_slots(10**9, 10**9, body)))
    page = read_live_page(tmp_path / who.folder)
    assert page is not None
    assert int(page.step["steps"]) == 812
    assert [(stream, index, int(slot["text"])) for stream, index, slot in page.open_ranges] == [
        (3, 7, 5)
    ]
    assert page.open_events == ()


def test_payloads_are_decoded_by_their_schema() -> None:
    text = "communicator\t18\t0\nparent\t18\t8\ncolor\t5\t16\nkey\t5\t0\nname\t75\t24"
    schema = payload_schemas([(1, text)])[1]
    content = struct.pack("<QQii", 7, 8, -1, 3)
    expected = {"communicator": 7, "parent": 8, "color": -1, "key": 3}
    assert payload_values(schema, content) == expected
    assert payload_values(schema, content[:17]) == {"communicator": 7, "parent": 8}


def test_texts_that_are_no_schema_or_category_are_left_out() -> None:
    hostile = "\t\t\nx\t-1\t2\n\u0663\t\u0663\t\u0663\na\t5\t99999999999999999999999999"
    assert payload_schemas([(1, hostile)]) == {1: ()}
    assert category_names([(1, "1\t2\tdata"), (2, "x\t2\tbad"), (3, "")]) == {(1, 2): "data"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("forward", True), ("step 12", True), ("layers.17.mlp", True),
        ("FSDP::all_gather (layers.1)", True), ("FSDP::backward_prefetch for layers.1", True),
        ("Optimizer.step#AdamW.step", True), ("enumerate(DataLoader)#_Iter.__next__", True),
        ("tell me a secret", False), ("/home/alice", False), ("a@b", False), ("", False),
        ("x (y) z", False), ("step 12 of alice", False), ("gr\u00fc\u00df", False),
    ],
)  # fmt: skip
def test_texts_that_are_names_are_packed(text: str, kept: bool) -> None:
    redaction = Redaction([{"host": "node7"}], replace_hosts=True)
    assert redaction.range_text(text, 5) == (text if kept else "text5")
    assert redaction.range_text("node7.loader", 5) == "host1.loader"


def test_context_is_packed_without_texts_that_are_no_names() -> None:
    redaction = Redaction([], replace_hosts=False)
    said = {"torch": "2.11.0+cu130", "gpu": "NVIDIA H200", "groups": ["mesh_tp", "tp:0", "/a b"]}
    said |= {"a secret": 1, "bytes": 4.5, "none": None}
    assert clean_context(said, redaction) == {
        "torch": "2.11.0+cu130", "gpu": "NVIDIA H200", "groups": ["mesh_tp", "tp:0", "removed"],
        "removed": 1, "bytes": 4.5, "none": None,
    }  # fmt: skip


def test_texts_and_payloads_are_removed_from_streams() -> None:
    kinds = layout.KINDS
    number = {"payload": 7, "payload_type": layout.PAYLOAD_I64}
    described = {"payload": 7, "payload2": 8, "payload_type": layout.PAYLOAD_SCHEMA}
    slots = [
        {"kind": kinds["RangeText"], "text": tuple(b"secret".ljust(56, b"\0"))},
        {"kind": kinds["Range"], "t0": 5, **number},
        {"kind": kinds["Range"], "t0": 5, **described},
        {"kind": kinds["RangePayload"], "parent": 9, "data": (1,) * 32},
        {"kind": kinds["CollApi"], "count": 39},
    ]
    torn = bytes([kinds["RangeText"]]) * 20
    data = bytearray(pack(slots).tobytes() + torn)
    clean_slots(data, 0, len(data))
    slots[0]["text"], slots[3]["data"] = (0,) * 56, (0,) * 32
    slots[2] |= {"payload": 0, "payload2": 0}
    assert bytes(data) == pack(slots).tobytes() + torn
