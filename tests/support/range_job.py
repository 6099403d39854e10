"""Programs of one rank on the simulated NCCL that push ranges, and what the recorder wrote."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, STOP_NS, HeadFilter, flag_column, key, number
from ncclscope.capture.process import Process, open_process
from ncclscope.model.process.events import events_of
from ncclscope.native import plugin_path

_PRELUDE = """
import ctypes as c, os, sys, threading, time
from ncclscope.simulation.nccl import SimulatedNccl
from ncclscope.simulation.scenario import Call
from ncclscope.native import plugin_path

class Job:
    def begin(self):
        self.nccl = nccl = SimulatedNccl()
        self.comm = nccl.communicator("world", nccl.unique_id(), 1, 0)
        self.stream, self.buffers = nccl.stream(), (nccl.memory(1 << 20), nccl.memory(1 << 20))
    def send(self):
        call = Call("world", "SendRecv", 4096)
        self.nccl.call(call, self.comm, 1, 0, self.buffers, self.stream)
        self.nccl.wait(self.stream)
    def end(self):
        self.nccl.destroy([self.comm])

job = Job()
"""


@dataclass(frozen=True)
class RecordedRange:
    """A range as a reader sees it."""

    key: int
    text: str
    parent: str
    domain: str
    source: int
    category: int
    payload: int
    payload_type: int
    start_ns: int
    end_ns: int  # -1: open
    is_mark: bool
    is_nested: bool
    thread: int


def start_program(capture: Path, body: str, **variables: str) -> "subprocess.Popen[str]":
    """Starts a Python program that is recorded; `job` has begin, send and end."""
    environment = os.environ | {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NVTX_INJECTION64_PATH": str(plugin_path()),
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": "trace",
        "NCCLSCOPE_SIM_RELEASE": "2.28",
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + body],
        env={name: value for name, value in environment.items() if value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def record(capture: Path, body: str, **variables: str) -> Process:
    """Runs a program to its end, and opens what it left."""
    program = start_program(capture, body, **variables)
    out, errors = program.communicate(timeout=120)
    assert program.returncode == 0, (out, errors)
    return only_process(capture)


def only_process(capture: Path) -> Process:
    """The capture's one process."""
    (folder,) = (path for path in capture.iterdir() if path.is_dir())
    return open_process(folder)


def _texts(process: Process, ranges: Any) -> list[str]:
    numbers = ranges.one(number("text")).tolist()
    texts = [process.range_texts.get(one, "") for one in numbers]
    behind = ranges.extended.tolist()
    for place, address in enumerate(behind):
        if address:
            slot = ranges.log.take(
                ranges.log.rows_of(_log_keys(ranges.keys[place : place + 1] + 1))
            )
            raw = slot.tobytes()[layout.slot_places("RangeText")["text"].offset :]
            texts[place] = raw.split(b"\0")[0].decode("utf-8", "replace")
    return texts


def _log_keys(keys: Any) -> Any:
    """Keys of the log (stream << 48) from keys of events (stream << INDEX_BITS)."""
    return keys >> layout.INDEX_BITS << 48 | keys & layout.INDEX_MASK


def ranges_of(process: Process) -> list[RecordedRange]:
    """All ranges in the order of their streams."""
    ranges = events_of(process, ("Range",))["Range"]
    read = ranges.read(
        parent=key("parent"), start=START_NS, end=STOP_NS, domain=number("domain"),
        source=number("chan"), category=number("category"), payload=number("payload"),
        payload_type=number("payload_type"), states=number("states"),
        is_loose=flag_column(HeadFilter(flags=layout.FLAG_SEND)),
    )  # fmt: skip
    texts, parents = _texts(process, ranges), ranges.find(read["parent"]).tolist()
    rows = {name: values.tolist() for name, values in read.items()}
    return [
        RecordedRange(
            key=int(ranges.keys[at]),
            text=texts[at],
            parent=texts[parents[at]] if parents[at] >= 0 else "",
            domain=process.range_domains.get(rows["domain"][at], ""),
            source=rows["source"][at],
            category=rows["category"][at],
            payload=rows["payload"][at],
            payload_type=rows["payload_type"][at],
            start_ns=rows["start"][at],
            end_ns=rows["end"][at],
            is_mark=bool(rows["states"][at] & layout.STATE_FIRST),
            is_nested=not rows["is_loose"][at],
            thread=int(ranges.thread[at]),
        )
        for at in range(len(texts))
    ]
