"""Writes transcripts of NCCL callbacks by hand, call by call, and records them with the real plugin."""

from collections import Counter
from pathlib import Path
from typing import Any

from ncclscope.capture.reader import open_capture
from tests.support.player import dump, player, recording, write_transcript
from tests.support.transcript_check import EVENT_NAMES, Line

BITS = {name: bit for bit, name in EVENT_NAMES.items()}
MASKS = {1: 0x3F, 2: 0x3F, 3: 0xFF, 4: 0xFF, 5: 0xFFF, 6: 0x7FFF, 7: 0xFFFF}


class Script:
    """A transcript that is written call by call."""

    def __init__(self, version: int) -> None:
        self.lines: list[Line] = []
        self.version = version
        self.handles = 0
        self.contexts = 0

    def _add(self, cb: str, thread: int, **fields: Any) -> None:
        numbers = {
            key: int(value) if isinstance(value, bool) else value for key, value in fields.items()
        }
        self.lines.append({"t": len(self.lines) * 1000, "tid": 100 + thread, "cb": cb, **numbers})

    def init(self, rank: int = 0, name: str = "", thread: int = 0) -> int:
        self.contexts += 1
        known = self.version >= 4
        self._add(
            "init", thread, v=self.version, ctx=self.contexts, mask=MASKS[self.version],
            comm=f"{0xABCD0 + self.contexts:x}" if known else "0", name=name if known else "",
            nnodes=2 if known else 0, nranks=4 if known else 0, rank=rank if known else 0,
        )  # fmt: skip
        return self.contexts

    def start(
        self,
        event: str,
        parent: int = 0,
        thread: int = 0,
        ctx: int = 1,
        rank: int = 0,
        **fields: Any,
    ) -> int:
        self.handles += 1
        bit = BITS.get(event, 1 << 20)
        self._add("start", thread, ctx=ctx, h=self.handles, p=parent, type=bit, rank=rank, **fields)
        return self.handles

    def stop(self, handle: int, thread: int = 0, **fields: Any) -> None:
        self._add("stop", thread, h=handle, **fields)

    def state(
        self, handle: int, state: int, arg: int = 0, steps: int = 0, thread: int = 0, **fields: Any
    ) -> None:
        self._add("state", thread, h=handle, s=state, a=arg, a2=steps, **fields)

    def finalize(self, ctx: int = 1) -> None:
        self._add("finalize", 0, ctx=ctx)

    def record(self, directory: Path, **variables: str) -> tuple[list[Line], dict[str, int]]:
        """Plays the script; events, and counters summed over event types."""
        path = write_transcript(directory / "script.jsonl", self.lines)
        capture = directory / "capture"
        played = player("play", path, env=recording(capture, **variables))
        assert played.returncode == 0, played.stderr
        counters: Counter[str] = Counter()
        for (name, _), count in open_capture(capture).processes[0].counters.items():
            counters[name] += count
        return dump(capture), dict(counters)


def every_event(version: int) -> Script:
    """Every event type the version knows, with every field set to something of its own."""
    script = Script(version)
    script.init(rank=1, name="tensor parallel" if version >= 4 else "")
    early = version <= 3
    group_api = call = message = 0
    if version >= 5:
        tag = {"tag": 77} if version >= 7 else {}
        group_api = script.start("GroupApi", graph=1, depth=3)
        script.state(group_api, 23)
        call = script.start("CollApi", group_api, func="Reduce", count=9, dtype="ncclBfloat16", root=3,
                            stream="7f00", graph=1, **tag)  # fmt: skip
        script.stop(call)
        message = script.start("P2pApi", group_api, func="Recv", count=1 << 40, dtype="ncclInt64", stream="7f01",
                               graph=0, **tag)  # fmt: skip
        script.stop(message)
        script.state(group_api, 24)
        launch = script.start("KernelLaunch", group_api, stream="7f02")
        script.stop(launch)
        script.stop(group_api)
    group = script.start("Group")
    names: Line = {"func": "Reduce", "dtype": "ncclBfloat16", "algo": "NVLS_TREE", "proto": "LL128"}
    if version == 1:
        names = {"func": 1, "dtype": 9, "algo": 5, "proto": 1}
    coll: Line = {"seq": 1 << 50, **names, "send": "7fff12345678", "recv": "7fffdeadbeef", "count": 1 << 41, "root": 3,
                  "nwarps": 20}  # fmt: skip
    coll |= {"nmaxch": 32, "comm": "feedface12345678"} if early else {"nch": 32}
    coll |= {"traffic": 123456789} if version <= 2 else {}
    coll |= {"op": 4_000_000_000, "collnet": True, "nvls": True} if version == 1 else {}
    coll |= (
        {"variant": "AllReduce_RSxLD_AGxST", "sym": True, "tag": 1 << 62} if version >= 7 else {}
    )
    coll |= {"group": group} if version >= 5 else {}
    work = script.start("Coll", call or group, rank=1, **coll)
    script.stop(work)
    p2p: Line = {
        "func": names["func"],
        "buff": "7fff00000001",
        "dtype": names["dtype"],
        "count": 5,
        "peer": 2,
    }
    p2p |= {"comm": "feedface12345678"} if early else {"nch": 7}
    p2p |= {"group": group} if version >= 5 else {}
    p2p |= {"tag": 99} if version >= 7 else {}
    sent = script.start("P2p", message or group, rank=1, **p2p)
    script.stop(sent)
    script.stop(group)
    op = script.start(
        "ProxyOp", work, rank=1, thread=1, pid=100, ch=31, peer=3, nsteps=2, chunk=4096, send=1
    )
    if early:
        for state in range(8):
            script.state(op, state, 1 << 33, state, thread=1)
    else:
        script.state(op, 19, thread=1)
    for step, states in enumerate(((8, 9) if early else (8, 20, 9), (10, 11, 12))):
        handle = script.start("ProxyStep", op, rank=1, thread=1, step=step)
        for state in states:
            script.state(handle, state, 0 if early else state * 1000, thread=1)
        script.stop(handle, thread=1)
    script.stop(op, thread=1)
    for states in ((15, 16), (17, 18), (13,)):
        ctrl = script.start("ProxyCtrl", thread=1)
        for state in states:
            script.state(ctrl, state, 5 if state == 18 else 0, thread=1)
        script.stop(ctrl, thread=1)
    if version >= 3:
        stamp = {"ptimer": 1794705808796030976} if version >= 4 else {}
        kernel = script.start("KernelCh", work, thread=1, ch=63, **stamp)
        if version >= 7:
            phase = script.start(
                "KernelPhase", kernel, thread=1, ch=63, phase=2, phname="final_sync", ptimer=55
            )
            script.state(phase, 31, 66, thread=1)
            script.stop(phase, thread=1)
        if version >= 4:
            script.state(kernel, 22, 1794705808796030999, thread=1)
        script.stop(kernel, thread=1)
        ib = script.start("NetPlugin", op, thread=1, rank=1, id=0x10001, nettype=1, device=3, wrid=1 << 60, opcode=2,
                          qp=0x123456, length=1 << 34)  # fmt: skip
        script.stop(ib, thread=1)
        socket = script.start(
            "NetPlugin", op, thread=1, rank=1, id=0x20001, nettype=1, fd=17, length=4096
        )
        script.stop(socket, thread=1)
        unknown = script.start("NetPlugin", op, thread=1, rank=1, id=0x7777_0000_0001)
        script.stop(unknown, thread=1)
    if version >= 6:
        tag = {"tag": 5} if version >= 7 else {}
        ce = script.start("CeColl", call, rank=1, seq=4, func="AllGather", send="1000", recv="2000", count=12, root=0,
                          dtype="ncclInt8", sync="mc", intra=True, batch=3, nbatches=4, ceseq=9, stream="7f03",
                          **tag)  # fmt: skip
        sync = script.start("CeSync", ce, complete=True, nranks=4)
        batch = script.start("CeBatch", ce, nops=6, bytes=1 << 35, intra=True)
        for handle in (batch, sync, ce):
            script.stop(handle)
    script.finalize()
    return script
