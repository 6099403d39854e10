"""`ncclscope ctl`."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.control import last_serial, request
from ncclscope.capture.housekeeping import identity_of, is_running, parse_bytes, process_folders
from ncclscope.capture.live_page import LivePage, read_live_page
from ncclscope.capture.metadata import by_kind, mode_changes
from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.arguments.ctl import OPTIONAL_EVENTS
from ncclscope.cli.rank_arguments import parse_ranks
from ncclscope.cli.recording_options import MOST_KERNEL_STEPS
from ncclscope.cli.take_kernels import request_line, take_kernels
from ncclscope.errors import FormatError, NcclscopeError, UsageError
from ncclscope.humanize import plural, ranks_in_words
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import BIT
from ncclscope.snapshot.process import read_snapshot

_ANSWER_S = 5.0  # processes read requests twice a second, and write live pages once a second
_MOST_BYTES = 60_000  # of the control file


def event_mask(names: str) -> int:
    """NCCL's mask of the named event types."""
    mask = 0
    for name in names.split(","):
        if name not in OPTIONAL_EVENTS:
            hint = f"Give some of {', '.join(OPTIONAL_EVENTS)}"
            raise UsageError(f"{name} cannot be switched while a job runs", hint)
        mask |= BIT[name]
    return mask


def _folders_of_ranks(capture: Path, ranks: str | None) -> list[Path]:
    """Folders of the running processes of these ranks."""
    running = [folder for folder in process_folders(capture) if is_running(folder)]
    if not running:
        message = f"cannot change {capture}: no process of it runs"
        raise NcclscopeError(message, "`ncclscope ls` shows which captures are being written")
    if ranks is None:
        return running
    wanted = parse_ranks(ranks)
    ranks_of = {folder: _ranks_of(folder) for folder in running}
    present = set().union(*ranks_of.values())
    missing = wanted - present
    if missing:
        few = ", ".join(map(str, sorted(missing)[:8]))
        message = f"cannot change rank {few} of {capture}: no such process runs"
        hint = f"There are {ranks_in_words(tuple(sorted(present)))}"
        raise UsageError(message, hint if present else "Without --rank, all are changed")
    return [folder for folder, folder_ranks in ranks_of.items() if folder_ranks & wanted]


def _ranks_of(folder: Path) -> set[int]:
    """A process's global ranks, as `top` and `status` show them."""
    try:
        snapshot = read_snapshot(folder, time.time_ns())
    except FormatError:
        return set()
    return {
        snapshot.global_rank,
        *(rank_state.global_rank for rank_state in snapshot.rank_states),
    } - {NONE}


def _has_ring(identity: dict[str, str]) -> bool:
    """Whether a process has a flight recorder; in profile mode there are no events to keep."""
    try:
        size_bytes = parse_bytes(identity.get("env.NCCLSCOPE_RING", "0"))
    except UsageError:  # the recorder does not understand it either
        return False
    return size_bytes > 0 and identity.get("mode") != "profile"


def _with_ring(capture: Path, folders: list[Path]) -> list[Path]:
    """Folders of the processes that have a flight recorder."""
    with_ring = [folder for folder in folders if _has_ring(identity_of(folder))]
    if with_ring:
        return with_ring
    modes = {identity_of(folder).get("mode") for folder in folders}
    on_disk = "" if "profile" in modes else "; without it, all of the record is on disk anyway"
    none = f"none of {plural(len(folders), 'process', 'processes')} has one"
    raise NcclscopeError(
        f"cannot copy the flight recorder of {capture}: {none}",
        f"Start the job with NCCLSCOPE_RING=64M in mode trace or full{on_disk}",
    )


def _check_sampling(capture: Path, folders: list[Path]) -> None:
    """Raises if a process cannot switch its GPU timing: only sampling by CUDA events can."""
    for folder in folders:
        timing = identity_of(folder).get("gpu_timing.in_force", "kernel")
        if timing != "sampled":
            raise NcclscopeError(
                f"cannot change the GPU timing of {capture}: {folder.name} started with {timing}",
                "KernelCh cannot be switched while a job runs; start it with --gpu-timing sampled",
            )


def _lines(arguments: argparse.Namespace, folders: list[Path]) -> list[str]:
    """The lines of the request."""
    lines = []
    if arguments.rank is not None:
        lines += [f"process {folder.name}" for folder in folders]
    if arguments.copy_out:
        lines.append("copy-out")
    if arguments.reset:
        lines.append("reset")
    if arguments.kernels:
        lines.append(request_line(arguments.kernels))
    if arguments.gpu_timing:
        lines.append(f"gpu-timing {arguments.gpu_timing}")
    if arguments.mode:
        lines.append(f"mode {arguments.mode}")
        lines += [f"events {event_mask(arguments.events):#x}"] if arguments.events else []
        lines += [f"seconds {arguments.seconds}"] if arguments.seconds else []
        lines += [f"calls {arguments.calls}"] if arguments.calls else []
    if sum(map(len, lines)) > _MOST_BYTES:
        raise UsageError(
            f"{plural(len(folders), 'rank')} are too many for one request", "Give fewer"
        )
    return lines


def _check(arguments: argparse.Namespace) -> None:
    limited = arguments.events or arguments.seconds or arguments.calls
    if limited and not arguments.mode:
        raise UsageError("--events, --seconds and --calls go with --mode")
    if arguments.kernels is not None and not 1 <= arguments.kernels <= MOST_KERNEL_STEPS:
        raise UsageError(f"--kernels takes 1 to {MOST_KERNEL_STEPS} steps")
    for name in ("seconds", "calls"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value < 1 << 40:
            raise UsageError(f"--{name} must be positive")


@dataclass(slots=True)
class _StateBefore:
    """A process's state before the request."""

    page: LivePage | None
    # A window of a second can be over before the next live page; metadata keep it.
    meta: MetadataTail | None
    changes: int = 0


def _state_before(folder: Path, limited: bool) -> _StateBefore:
    meta = MetadataTail(folder / "meta") if limited else None
    before = _StateBefore(read_live_page(folder), meta)
    before.changes = len(_modes_since(before))
    return before


def _modes_since(before: _StateBefore) -> list[str]:
    """Modes that a process has changed to since then."""
    if before.meta is None or not before.meta.read():
        return []
    changes = mode_changes(by_kind(before.meta.kept))
    return [change.mode for change in changes[before.changes :]]


def _has_applied(folder: Path, before: _StateBefore, mode: str | None) -> bool:
    """Whether a process has carried out the request."""
    if mode in _modes_since(before):
        return True
    page = read_live_page(folder)
    if page is None or before.page is None or page.serial < before.page.serial + 2:
        return False
    return mode is None or page.mode == mode


def run(arguments: argparse.Namespace) -> int:
    """Sends the request, and waits until the processes have carried it out."""
    _check(arguments)
    capture = resolve_capture(arguments.capture)
    folders = _folders_of_ranks(capture, arguments.rank)
    if arguments.copy_out:
        folders = _with_ring(capture, folders)
    if arguments.gpu_timing:
        _check_sampling(capture, folders)
    lines = _lines(arguments, folders)
    if arguments.kernels:
        return take_kernels(capture, folders, lines)
    limited = bool(arguments.seconds or arguments.calls)
    before = {folder: _state_before(folder, limited) for folder in folders}
    serial = request(capture, *lines)
    waiting, end = set(folders), time.monotonic() + _ANSWER_S
    while waiting and time.monotonic() < end:
        time.sleep(0.1)
        waiting = {f for f in waiting if not _has_applied(f, before[f], arguments.mode)}
    done = len(folders) - len(waiting)
    print(f"{done} of {plural(len(folders), 'process', 'processes')} {_result_text(arguments)}")
    if waiting:
        silent = f"{plural(len(waiting), 'process', 'processes')} of {capture}"
        if last_serial(capture) != serial:
            raise NcclscopeError(
                f"{silent} did not see this request: another one took its place", "Make it again"
            )
        raise NcclscopeError(
            f"{silent} did not answer",
            "They may have ended, or stand still: `ncclscope status` says",
        )
    return 0


def _result_text(arguments: argparse.Namespace) -> str:
    """What processes do now."""
    if arguments.copy_out:
        return "wrote their flight recorder to disk"
    if arguments.reset:
        return "record again what they recorded at the start"
    if arguments.gpu_timing:
        return "sample GPU times" if arguments.gpu_timing == "sampled" else "take no GPU times"
    until = f" for {arguments.seconds} s" if arguments.seconds else ""
    until += f" for {arguments.calls:,} calls" if arguments.calls else ""
    return f"record in {arguments.mode} mode{until}"
