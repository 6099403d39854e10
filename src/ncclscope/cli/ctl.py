"""`ncclscope ctl`."""

import argparse
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.control import request
from ncclscope.capture.housekeeping import identity_of, is_running, parse_bytes, process_folders
from ncclscope.capture.live_page import LivePage, read_live_page
from ncclscope.capture.metadata import by_kind, mode_changes
from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.capture.reader import resolve_capture
from ncclscope.errors import FormatError, NcclscopeError, UsageError
from ncclscope.humanize import plural, ranks_in_words
from ncclscope.model.schema import NONE
from ncclscope.snapshot.process import read_snapshot

_PATIENCE_S = 5.0  # for processes to obey; they look twice a second, and say so once a second
_MOST_BYTES = 60_000  # of the control file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to record from now on, where, and for how long."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mode", choices=("profile", "trace", "full"), help="record in this mode")
    what.add_argument("--reset", action="store_true", help="back to what the job started with")
    what.add_argument(
        "--copy-out", action="store_true", help="write the flight recorder to disk now"
    )
    parser.add_argument(
        "--events", metavar="NAMES",
        help="with --mode: only these of NCCL's event types, besides calls, operations and kernels "
        f"({', '.join(optional_events())})",
    )  # fmt: skip
    parser.add_argument("--seconds", type=int, metavar="N", help="with --mode: for so long")
    parser.add_argument("--calls", type=int, metavar="N", help="with --mode: for so many calls")
    parser.add_argument("--rank", metavar="RANKS", help="only these, as in 0,4-7 (default: all)")


def optional_events() -> tuple[str, ...]:
    """NCCL's event types that may be switched while a job runs."""
    return (
        "Group",
        "ProxyOp",
        "ProxyStep",
        "ProxyCtrl",
        "NetPlugin",
        "KernelLaunch",
        "KernelPhase",
    )


def event_mask(names: str) -> int:
    """NCCL's bits of event types."""
    mask = 0
    for name in names.split(","):
        if name not in optional_events():
            known = ", ".join(optional_events())
            raise UsageError(f"{name} cannot be switched while a job runs", f"Give some of {known}")
        mask |= 1 << (layout.KINDS[name] - 1)
    return mask


def ranks_in(text: str) -> set[int]:
    """{0, 4, 5, 6, 7} of 0,4-7"""
    found: set[int] = set()
    for piece in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", piece)
        if not match or not 0 <= int(match[2] or match[1]) - int(match[1]) <= 1 << 20:
            raise UsageError(f"{text} names no ranks", "Give numbers and ranges: 0,4-7")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def _chosen(capture: Path, ranks: str | None) -> list[Path]:
    """Running processes of these ranks."""
    running = [folder for folder in process_folders(capture) if is_running(folder)]
    if not running:
        message = f"cannot change {capture}: no process of it runs"
        raise NcclscopeError(message, "`ncclscope ls` shows which captures are being written")
    if ranks is None:
        return running
    wanted = ranks_in(ranks)
    held = {folder: _ranks_of(folder) for folder in running}
    known = set().union(*held.values())
    missing = wanted - known
    if missing:
        few = ", ".join(map(str, sorted(missing)[:8]))
        message = f"cannot change rank {few} of {capture}: no such process runs"
        running_ones = f"There are {ranks_in_words(tuple(sorted(known)))}"
        raise UsageError(message, running_ones if known else "Without --rank, all are changed")
    return [folder for folder, ranks in held.items() if ranks & wanted]


def _ranks_of(folder: Path) -> set[int]:
    """A process's ranks as `top` and `status` show them."""
    try:
        snapshot = read_snapshot(folder, time.time_ns())
    except FormatError:
        return set()
    return {
        snapshot.global_rank,
        *(rank_state.global_rank for rank_state in snapshot.rank_states),
    } - {NONE}


def _has_ring(identity: dict[str, str]) -> bool:
    """Whether a process keeps a flight recorder: in profile mode there is nothing to keep."""
    try:
        kept = parse_bytes(identity.get("env.NCCLSCOPE_RING", "0"))
    except UsageError:  # the recorder does not understand it either
        return False
    return kept > 0 and identity.get("mode") != "profile"


def _with_ring(capture: Path, chosen: list[Path]) -> list[Path]:
    """Those of the processes that have a flight recorder to be copied."""
    having = [folder for folder in chosen if _has_ring(identity_of(folder))]
    if having:
        return having
    started_in = {identity_of(folder).get("mode") for folder in chosen}
    on_disk = "" if "profile" in started_in else "; without it, all of the record is on disk anyway"
    none = f"none of {plural(len(chosen), 'process', 'processes')} has one"
    raise NcclscopeError(
        f"cannot copy the flight recorder of {capture}: {none}",
        f"Start the job with NCCLSCOPE_RING=64M in mode trace or full{on_disk}",
    )


def _lines(arguments: argparse.Namespace, chosen: list[Path]) -> list[str]:
    lines = []
    if arguments.rank is not None:
        lines += [f"process {folder.name}" for folder in chosen]
    if arguments.copy_out:
        lines.append("copy-out")
    if arguments.reset:
        lines.append("reset")
    if arguments.mode:
        lines.append(f"mode {arguments.mode}")
        lines += [f"events {event_mask(arguments.events):#x}"] if arguments.events else []
        lines += [f"seconds {arguments.seconds}"] if arguments.seconds else []
        lines += [f"calls {arguments.calls}"] if arguments.calls else []
    if sum(map(len, lines)) > _MOST_BYTES:
        raise UsageError(
            f"{plural(len(chosen), 'rank')} are too many for one request", "Give fewer"
        )
    return lines


def _check(arguments: argparse.Namespace) -> None:
    limited = arguments.events or arguments.seconds or arguments.calls
    if limited and not arguments.mode:
        raise UsageError("--events, --seconds and --calls go with --mode")
    for name in ("seconds", "calls"):
        given = getattr(arguments, name)
        if given is not None and not 0 < given < 1 << 40:
            raise UsageError(f"--{name} must be positive")


@dataclass(slots=True)
class _Heard:
    """What a process was like before it was asked."""

    page: LivePage | None
    # A window of a second may be over before a live page tells of it; metadata keep it.
    meta: MetadataTail | None
    changes: int = 0


def _before(folder: Path, limited: bool) -> _Heard:
    heard = _Heard(read_live_page(folder), MetadataTail(folder / "meta") if limited else None)
    heard.changes = len(_modes_since(heard))
    return heard


def _modes_since(heard: _Heard) -> list[str]:
    """Modes that a process changed to."""
    if heard.meta is None or not heard.meta.read():
        return []
    found = mode_changes(by_kind(heard.meta.kept))
    return [zoom.mode for zoom in found[heard.changes :]]


def _obeyed(folder: Path, before: _Heard, mode: str | None) -> bool:
    if mode in _modes_since(before):
        return True
    page = read_live_page(folder)
    if page is None or before.page is None or page.serial < before.page.serial + 2:
        return False
    return mode is None or page.mode == mode


def run(arguments: argparse.Namespace) -> int:
    """Asks, and waits until the processes have heard."""
    _check(arguments)
    capture = resolve_capture(arguments.capture)
    chosen = _chosen(capture, arguments.rank)
    if arguments.copy_out:
        chosen = _with_ring(capture, chosen)
    lines = _lines(arguments, chosen)
    limited = bool(arguments.seconds or arguments.calls)
    before = {folder: _before(folder, limited) for folder in chosen}
    request(capture, *lines)
    waiting, end = set(chosen), time.monotonic() + _PATIENCE_S
    while waiting and time.monotonic() < end:
        time.sleep(0.1)
        waiting = {f for f in waiting if not _obeyed(f, before[f], arguments.mode)}
    done = len(chosen) - len(waiting)
    print(f"{done} of {plural(len(chosen), 'process', 'processes')} {_said(arguments)}")
    if waiting:
        raise NcclscopeError(
            f"{plural(len(waiting), 'process', 'processes')} of {capture} did not answer",
            "They may have ended, or stand still: `ncclscope status` says",
        )
    return 0


def _said(arguments: argparse.Namespace) -> str:
    if arguments.copy_out:
        return "wrote their flight recorder to disk"
    if arguments.reset:
        return "record again what they recorded at the start"
    until = f" for {arguments.seconds} s" if arguments.seconds else ""
    until += f" for {arguments.calls:,} calls" if arguments.calls else ""
    return f"record in {arguments.mode} mode{until}"
