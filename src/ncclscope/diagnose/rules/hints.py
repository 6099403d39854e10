"""Hints: small messages, algorithms, launches and overlap that cost time."""

import numpy as np

from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, percent
from ncclscope.model.schema import GPU_SOURCES, NONE, SOURCES

_SMALL_BYTES = 64 << 10  # below, latency decides
_MANY_SMALL = 0.5  # of calls
_TIME_IN_SMALL = 0.05  # of the run
_SLOWER = 2.0
_LAUNCH_BOUND = 0.5  # of operations are shorter than their launch
_GPU = [SOURCES.index(name) for name in GPU_SOURCES]


def small_messages(frame: RuleContext) -> list[Finding]:
    """Many calls that move next to nothing."""
    ops = frame.ops
    known = frame.collective & (ops["size_bytes"] > 0)
    small = known & (ops["size_bytes"] < _SMALL_BYTES)
    calls = int(known.sum())
    if not calls or small.sum() < _MANY_SMALL * calls:
        return []
    timed = small & (ops["duration_ns"] > 0)
    ranks = max(len(np.unique(ops["global_rank"][timed])), 1)
    wire = np.where(ops["wire_ns"][timed] != NONE, ops["wire_ns"][timed], ops["duration_ns"][timed])
    share = float(wire.sum()) / ranks / frame.span_ns
    if share < _TIME_IN_SMALL:
        return []
    moved = float(ops["size_bytes"][small].sum()) / max(float(ops["size_bytes"][known].sum()), 1)
    return [
        Finding(
            "small_messages",
            INFO,
            f"{percent(small.sum() / calls)} of collectives are below {binary_size(_SMALL_BYTES)}: "
            f"{percent(moved)} of the bytes take {percent(min(share, 1))} of the run on the wire",
            "fuse them (larger buckets, coalesced calls), or capture them in a CUDA graph",
            evidence=(
                Evidence(
                    "message sizes",
                    {"share_of_calls": round(float(small.sum()) / calls, 4)},
                    f"ncclscope report {frame.path} --by size",
                ),
            ),
            confidence=0.8,
            lost_share=min(share, 1.0) * 0.5,
        )
    ]


def algorithm(frame: RuleContext) -> list[Finding]:
    """The same function and size on as many ranks, far slower with one algorithm than another."""
    ops, table = frame.ops, frame.model.tables["communicators"]
    rows = np.flatnonzero(frame.collective & (ops["wire_ns"] > 0) & (ops["size_bytes"] > 0))
    if not len(rows):
        return []
    comm = np.asarray(ops["communicator"], np.int64)[rows]
    ranks = np.asarray(table["ranks"], np.int64)[comm]
    nodes = np.asarray(table["nodes"], np.int64)[comm]
    columns = [
        ranks,
        nodes,
        *(np.asarray(ops[n], np.int64)[rows] for n in ("function", "size_bytes")),
    ]
    kinds, kind = np.unique(np.stack(columns), axis=1, return_inverse=True)
    choice = np.asarray(ops["algorithm"], np.int64)[rows] * 128 + ops["protocol"][rows]
    wire, kind, found = np.asarray(ops["wire_ns"], np.float64)[rows], kind.reshape(-1), []
    for one in range(kinds.shape[1]):
        mine = np.flatnonzero(kind == one)
        choices = np.unique(choice[mine])
        if len(choices) < 2:
            continue
        medians = {int(c): float(np.median(wire[mine[choice[mine] == c]])) for c in choices}
        slow, fast = max(medians, key=lambda c: medians[c]), min(medians, key=lambda c: medians[c])
        counts = (choice[mine] == slow).sum()
        if medians[slow] < _SLOWER * medians[fast] or counts < 10:
            continue
        names = [
            f"{frame.word('algorithm', c // 128)} {frame.word('protocol', c % 128)}"
            for c in (slow, fast)
        ]
        function = frame.word("function", int(kinds[2, one]))
        share = counts * (medians[slow] - medians[fast]) / max(kinds[0, one], 1) / frame.span_ns
        found.append(
            Finding(
                "algorithm",
                INFO,
                f"{function} of {binary_size(int(kinds[3, one]))} takes "
                f"{medians[slow] / medians[fast]:.3g} times as long with {names[0]} as with "
                f"{names[1]}",
                "NCCL_ALGO, NCCL_PROTO or a tuner plugin can choose; measure with "
                "`ncclscope bench`",
                confidence=0.6,
                lost_share=min(float(share), 1.0),
                evidence=(
                    Evidence(
                        "median time on the wire by algorithm",
                        {},
                        f"ncclscope report {frame.path} --by +algorithm,+protocol",
                    ),
                ),
            )
        )
    return sorted(found, key=lambda finding: -finding.lost_share)[:3]


def launch_bound(frame: RuleContext) -> list[Finding]:
    """Operations that take longer to launch than to run."""
    ops = frame.ops
    known = frame.collective & (ops["launch_end_ns"] != NONE) & (ops["call_ns"] != NONE)
    known &= np.isin(ops["source"], _GPU) & (ops["duration_ns"] > 0)
    rows = np.flatnonzero(known)
    if len(rows) < 100:
        return []
    launch = (ops["launch_end_ns"][rows] - ops["call_ns"][rows]).astype(np.float64)
    wire = np.where(ops["wire_ns"][rows] != NONE, ops["wire_ns"][rows], ops["duration_ns"][rows])
    bound = float(np.mean(launch > wire))
    ranks = max(len(np.unique(ops["global_rank"][rows])), 1)
    share = float(launch.sum()) / ranks / frame.span_ns
    if bound < _LAUNCH_BOUND or share < _TIME_IN_SMALL:
        return []
    return [
        Finding(
            "launch_bound",
            INFO,
            f"{percent(bound)} of collectives take longer to launch than to run; launching takes "
            f"{percent(min(share, 1))} of the run",
            "capture them in a CUDA graph, group them, or make them fewer and larger",
            evidence=(
                Evidence(
                    "call to launch against time on the wire",
                    {"median_launch_us": round(float(np.median(launch)) / 1e3, 3)},
                ),
            ),
            confidence=0.7,
            lost_share=min(share, 1.0) * 0.5,
        )
    ]


def serialised(frame: RuleContext) -> list[Finding]:
    """Several communicators whose kernels never run at the same time, one right after the other."""
    ops = frame.ops
    rows = np.flatnonzero(frame.collective & (ops["start_ns"] != NONE) & (ops["end_ns"] != NONE))
    rank = np.asarray(ops["global_rank"], np.int64)[rows]
    if not len(rows) or len(np.unique(ops["communicator"][rows])) < 2:
        return []
    one = rows[rank == rank.min()]
    one = one[np.argsort(ops["start_ns"][one], kind="stable")]
    start, end = ops["start_ns"][one].astype(np.int64), ops["end_ns"][one].astype(np.int64)
    other = np.diff(ops["communicator"][one]) != 0
    wait = start[1:] - end[:-1]
    close = other & (wait >= 0) & (wait < 20_000)
    overlapping = other & (wait < 0)
    if other.sum() < 50 or overlapping.any() or close.sum() < 0.5 * other.sum():
        return []
    share = float((end - start)[1:][close].sum()) / frame.span_ns
    if share < _TIME_IN_SMALL:
        return []
    return [
        Finding(
            "launch_bound",
            INFO,
            f"collectives of different communicators run one right after the other on each GPU and "
            f"never at the same time; {percent(share)} of the run",
            "put them on different CUDA streams; see CUDA_DEVICE_MAX_CONNECTIONS",
            "serialised",
            evidence=(Evidence("back to back", {"times": int(close.sum())}),),
            confidence=0.5,
            lost_share=share * 0.25,
        )
    ]


def find(frame: RuleContext) -> list[Finding]:
    """All hints."""
    return [
        *small_messages(frame),
        *algorithm(frame),
        *launch_bound(frame),
        *serialised(frame),
    ]
