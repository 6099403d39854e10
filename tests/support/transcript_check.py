"""Compares the events of a capture with the transcript of callbacks that was played to record it."""

from collections import defaultdict
from typing import Any

Line = dict[str, Any]
EVENT_NAMES = {
    1 << bit: name
    for bit, name in enumerate(
        [
            "Group",
            "Coll",
            "P2p",
            "ProxyOp",
            "ProxyStep",
            "ProxyCtrl",
            "KernelCh",
            "NetPlugin",
            "GroupApi",
            "CollApi",
            "P2pApi",
            "KernelLaunch",
            "CeColl",
            "CeSync",
            "CeBatch",
            "KernelPhase",
        ]
    )
}
# Transcript key -> NCCL's field name, by event.
FIELDS = {
    "Coll": {
        "comm": "commHash", "seq": "seqNumber", "func": "func", "send": "sendBuff", "recv": "recvBuff",
        "count": "count", "root": "root", "dtype": "datatype", "nch": "nChannels", "nmaxch": "nMaxChannels",
        "nwarps": "nWarps", "algo": "algo", "proto": "proto", "op": "op", "traffic": "trafficBytes",
        "variant": "kernelVariant", "sym": "isSymColl", "tag": "userTag", "collnet": "isCollnet", "nvls": "isNvls",
    },
    "P2p": {
        "comm": "commHash", "func": "func", "buff": "buff", "dtype": "datatype", "count": "count", "peer": "peer",
        "nch": "nChannels", "tag": "userTag",
    },
    "ProxyOp": {
        "ch": "channelId", "peer": "peer", "nsteps": "nSteps", "chunk": "chunkSize", "send": "isSend",
    },
    "ProxyStep": {"step": "step"},
    "KernelCh": {"ch": "channelId", "ptimer": "pTimer"},
    "GroupApi": {"graph": "graphCaptured", "depth": "groupDepth"},
    "CollApi": {
        "func": "func", "count": "count", "dtype": "datatype", "root": "root", "stream": "stream",
        "graph": "graphCaptured", "tag": "userTag",
    },
    "P2pApi": {
        "func": "func", "count": "count", "dtype": "datatype", "stream": "stream", "graph": "graphCaptured",
        "tag": "userTag",
    },
    "KernelLaunch": {"stream": "stream"},
    "KernelPhase": {"ch": "channelId", "phase": "phaseId", "phname": "phaseName", "ptimer": "pTimer"},
    "NetPlugin": {
        "id": "id", "nettype": "type", "device": "device", "wrid": "wr_id", "opcode": "opcode", "qp": "qpNum",
        "length": "length", "fd": "fd",
    },
    "CeColl": {
        "seq": "seqNumber", "func": "func", "send": "sendBuff", "recv": "recvBuff", "count": "count",
        "root": "root", "dtype": "datatype", "sync": "syncStrategy", "intra": "intraBatchSync",
        "batch": "batchSize", "nbatches": "numBatches", "ceseq": "ceSeqNum", "stream": "stream", "tag": "userTag",
    },
    "CeSync": {"complete": "isComplete", "nranks": "nRanks"},
    "CeBatch": {"nops": "numOps", "bytes": "totalBytes", "intra": "useIntraSync"},
    "Group": {}, "ProxyCtrl": {},
}  # fmt: skip
COMMON = {"t", "tid", "cb", "ctx", "h", "p", "type", "rank", "group", "pid", "again"}
STATE_ARGUMENT = {
    **dict.fromkeys((*range(13), 20), "transSize"), 18: "appendedProxyOps", 22: "pTimer", 31: "pTimer",
}  # fmt: skip


def by_thread(items: list[Line], tid: str) -> list[list[Line]]:
    """Per thread, threads in the order in which they first appear."""
    threads: dict[int, list[Line]] = defaultdict(list)
    for item in items:
        threads[item[tid]].append(item)
    return list(threads.values())


def recorded_threads(events: list[Line]) -> list[list[Line]]:
    """The events of each stream in the order of their slots."""
    threads = by_thread(sorted(events, key=lambda event: event["start_ns"]), "thread")
    for thread in threads:
        thread.sort(key=lambda event: int(event["id"].partition(".")[2]))
    return threads


def check_process(lines: list[Line], events: list[Line], finalized: bool, pid: int) -> int:
    """Holds one process's dump against its transcript; returns the number of events compared."""
    inits = [line for line in lines if line["cb"] == "init"]
    version = inits[0]["v"]
    comms = [event for event in events if event["event"] == "Comm"]
    check_communicators(inits, comms, lines, finalized)
    starts = [line for line in lines if line["cb"] == "start"]
    recorded = [event for event in events if event["event"] != "Comm"]
    expected_threads, found_threads = by_thread(starts, "tid"), recorded_threads(recorded)
    assert [len(thread) for thread in found_threads] == [len(thread) for thread in expected_threads]
    pairs = [
        pair
        for expected, found in zip(expected_threads, found_threads, strict=True)
        for pair in zip(expected, found, strict=True)
    ]
    ids: dict[int, str | None] = {line["h"]: event["id"] for line, event in pairs} | {0: None}
    assert len({event["id"] for event in recorded}) == len(recorded)
    contexts = {init["ctx"]: comm["id"] for init, comm in zip(inits, comms, strict=True)}
    updates: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line["cb"] in ("stop", "state"):
            updates[line["h"]].append(line)
    for line, event in pairs:
        name = EVENT_NAMES[line["type"]]
        assert event["event"] == name
        assert event["parent"] == ids[line["p"]], (line, event)
        if name not in ("ProxyStep",):
            assert event["comm"] == contexts[line["ctx"]]
        check_fields(name, line, event["fields"], ids, pid, lines[0]["tid"])
        check_updates(event, updates[line["h"]], version)
    return len(pairs)


def check_communicators(
    inits: list[Line], comms: list[Line], lines: list[Line], finalized: bool
) -> None:
    ends = {line["ctx"] for line in lines if line["cb"] == "finalize"} if finalized else set()
    assert len(comms) == len(inits)
    for init, comm in zip(inits, comms, strict=True):
        fields = comm["fields"]
        assert fields["interface"] == init["v"]
        assert fields["commId"] == init["comm"].lstrip("0") or int(init["comm"], 16) == 0
        assert (fields["nNodes"], fields["nRanks"]) == (init["nnodes"], init["nranks"])
        assert fields["rank"] == (init["rank"] if init["v"] >= 4 else None)
        assert fields["commName"] == init["name"]
        assert fields["mask"] == init["mask"]
        assert (comm["stop_ns"] is not None) == (init["ctx"] in ends)


def check_fields(
    name: str, line: Line, fields: Line, ids: dict[int, str | None], pid: int, own: int
) -> None:
    mapping = FIELDS[name]
    assert set(line) - COMMON - {"name"} <= set(mapping), (
        f"{name}: the test does not know {set(line) - COMMON}"
    )
    for key, field in mapping.items():
        if key in line and not (name == "ProxyOp" and key == "comm"):
            assert fields[field] == line[key], (key, line, fields)
    assert fields["rank"] == line["rank"]
    if "group" in line:
        assert fields["parentGroup"] == ids[line["group"]]
    if name == "ProxyOp":
        assert fields["pid"] == (pid if line["pid"] == own else line["pid"])


def check_updates(event: Line, updates: list[Line], version: int) -> None:
    states = [update for update in updates if update["cb"] == "state"]
    stops = [update for update in updates if update["cb"] == "stop"]
    assert (event["stop_ns"] is not None) == bool(stops)
    assert [state["state"] for state in event["states"]] == [state["s"] for state in states]
    times = [event["start_ns"], *(state["t_ns"] for state in event["states"])]
    if stops:
        times.append(event["stop_ns"])
    assert times == sorted(times)
    for expected, found in zip(states, event["states"], strict=True):
        argument = STATE_ARGUMENT.get(expected["s"])
        if argument in found:
            assert found[argument] == expected["a"]
        else:  # no arguments to speak of: v1 to v3 pass NULL with steps, GroupApi and others always
            assert expected["a"] == 0
        if expected["s"] <= 7:
            assert found["steps"] == expected["a2"]
