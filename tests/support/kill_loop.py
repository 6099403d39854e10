"""SIGKILLs the player at random moments and holds what is on record against what NCCL knows to be on record.

The player's self-checking load writes, into memory that survives it, how far each thread is. Everything a record holds
can be computed from its number and thread, so a lost, torn or mixed-up record is found.
"""

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture, resolve_capture
from ncclscope.capture.segment import expand
from tests.support.player import recording, start_player

Words = npt.NDArray[np.uint64]
THREADS = 2
CHUNKS = 48  # of 64 KB: little enough to be recycled all the time
MOST_USES = 10  # of each chunk before the kill
PATIENCE_S = 4.0
# Of each thread: about as many as it can make.
CALLBACKS_PER_S = 1_200_000
_ORACLE = np.dtype(
    [("started", "<u8"), ("stopped", "<u8"), ("refused", "<u8"), ("pad", "<u8", (5,))]
)
_KINDS, _DTYPES = layout.KINDS, dtypes.OURS.dtypes


@dataclass
class Verdict:
    """One kill: records checked, and the first thing that is wrong."""

    checked: int
    refused: int
    recycled: int  # how often each chunk was used, on average
    problem: str


def mix(x: Words) -> Words:
    """As in native/harness/load.c."""
    x = x ^ (x >> np.uint64(31))
    x = x * np.uint64(0x9E3779B97F4A7C15)
    return x ^ (x >> np.uint64(29))


def kill_once(directory: Path, seed: int, rate: int = CALLBACKS_PER_S) -> Verdict:
    """Runs the self-checking load, kills it at a random moment, and checks what it left."""
    chance = random.Random(seed)
    capture, oracle_path = directory / f"kill-{seed}", directory / f"oracle-{seed}"
    env = recording(capture, NCCLSCOPE_ARENA=str(CHUNKS << 16), NCCLSCOPE_DISK_LIMIT="1G")
    arguments = [
        "--oracle",
        oracle_path,
        "--threads",
        THREADS,
        "--collectives",
        1 << 40,
        "--version",
        6,
    ]
    victim = start_player("load", *arguments, "--rate", rate, env=env)
    while not (oracle_path.exists() and oracle_path.stat().st_size):
        time.sleep(0.001)
    _wait_for_records(oracle_path, chance.uniform(0, MOST_USES) * CHUNKS * 1024)
    time.sleep(chance.uniform(0, 0.01))  # in the middle of anything
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    oracle = np.fromfile(oracle_path, _ORACLE, THREADS)
    opened = open_capture(resolve_capture(str(capture)))
    assert len(opened.processes) == 1, opened.unreadable
    return check(opened.processes[0], oracle)


def _wait_for_records(oracle_path: Path, wanted: float) -> None:
    """Returns when so many are certain, or when it takes too long."""
    oracle = np.memmap(oracle_path, _ORACLE, "r", shape=(THREADS,))
    patience = time.monotonic() + PATIENCE_S
    while time.monotonic() < patience:
        if int(oracle["started"].sum()) - int(oracle["refused"].sum()) >= wanted:
            return
        time.sleep(0.001)


def _all_slots(process: Process) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Every slot on record and the one after it."""
    log = process.slots
    rows = expand(log.blocks.row, log.blocks.count)
    keys = expand(log.blocks.key, log.blocks.count)
    after = log.rows_of(keys + 1)
    return log.take(rows), log.take(np.where(after >= 0, after, rows))


def check(process: Process, oracle: npt.NDArray[np.void]) -> Verdict:
    """Counts and checks every record."""
    refused = int(oracle["refused"].sum())
    slots, following = _all_slots(process)
    problems = (
        [str(process.damage)] if process.damage.bad_slots or process.damage.unreadable else []
    )
    numbers: list[Words] = []
    threads: list[Words] = []
    stopped: list[npt.NDArray[np.bool_]] = []
    for kind, read in (("P2p", _p2p), ("Coll", _coll), ("ProxyStep", _step), ("KernelCh", _kernel)):
        of_kind = slots["kind"] == _KINDS[kind]
        typed = slots[of_kind].view(_DTYPES[kind])
        n, thread, fine = read(typed, following[of_kind])
        if not fine.all():
            problems.append(
                f"{int((~fine).sum())} {kind} records hold something else than they should"
            )
        numbers.append(n)
        threads.append(thread)
        stopped.append((typed["states"] & layout.STATE_STOPPED) != 0)
    n, thread, done = np.concatenate(numbers), np.concatenate(threads), np.concatenate(stopped)
    for number, state in enumerate(oracle):
        of_thread = thread == number
        order = np.argsort(n[of_thread])
        found, ended = n[of_thread][order], done[of_thread][order]
        if (found[1:] == found[:-1]).any():
            problems.append(f"thread {number}: records twice")
        # One more may be on record, or refused, that the oracle had not heard of.
        certain = int(state["started"]) - int(state["refused"])
        if not certain <= len(found) <= certain + 2:
            problems.append(f"thread {number}: {len(found)} records, {certain} were certain")
        if not state["refused"]:
            if len(found) and found[-1] != len(found) - 1:
                problems.append(f"thread {number}: there is a hole among its records")
            elif not ended[: int(state["stopped"])].all():
                problems.append(f"thread {number}: a stop that was certain is missing")
    chunks = len(np.unique(process.slots.blocks.key >> 10))
    return Verdict(len(n), refused, chunks // CHUNKS, "; ".join(problems))


def _key(n: Words, thread: Words) -> Words:
    return (n << np.uint64(8)) | thread


def _u8(values: npt.NDArray[np.generic]) -> Words:
    return values.astype(np.uint64)


def _p2p(
    s: npt.NDArray[np.void], _: npt.NDArray[np.void]
) -> tuple[Words, Words, npt.NDArray[np.bool_]]:
    n, thread = s["count"], _u8(s["peer"])
    key = _key(n, thread)
    fine = (s["buff"] == mix(key)) & (s["parent"] == mix(key + np.uint64(1)))
    fine &= (s["parent_group"] == mix(key + np.uint64(2))) & (
        s["chan"] == ((n // np.uint64(4)) & np.uint64(0xFF))
    )
    return n, thread, fine


def _coll(
    s: npt.NDArray[np.void], after: npt.NDArray[np.void]
) -> tuple[Words, Words, npt.NDArray[np.bool_]]:
    n, thread = s["seq"], _u8(s["root"])
    key = _key(n, thread)
    ext = after.view(_DTYPES["CollExt"])
    fine = (
        (ext["kind"] == _KINDS["CollExt"]) & (s["count"] == mix(key)) & (ext["rank"] == s["root"])
    )
    fine &= (ext["send_buff"] == mix(key + np.uint64(1))) & (
        ext["recv_buff"] == mix(key + np.uint64(2))
    )
    return n, thread, fine & (ext["parent_group"] == mix(key + np.uint64(3)))


def _step(
    s: npt.NDArray[np.void], _: npt.NDArray[np.void]
) -> tuple[Words, Words, npt.NDArray[np.bool_]]:
    n, thread = _u8(s["step"]), _u8(s["rank"])
    key = _key(n, thread)
    fine = s["parent"] == mix(key)
    for which in range(3):
        seen = (s["states"] & (1 << which)) != 0
        expected = mix(key + np.uint64(which)) & np.uint64(0xFFFFFFFF)
        fine &= ~seen | (s["size"][:, which] == expected)
    return n, thread, fine


def _kernel(
    s: npt.NDArray[np.void], _: npt.NDArray[np.void]
) -> tuple[Words, Words, npt.NDArray[np.bool_]]:
    n, thread = s["gpu_start"], _u8(s["chan"])
    key = _key(n, thread)
    fine = s["parent"] == mix(key)
    seen = (s["states"] & layout.STATE_FIRST) != 0
    return n, thread, fine & (~seen | (s["gpu_stop"] == mix(key + np.uint64(1))))
