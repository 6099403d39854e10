"""`ncclscope dump`."""

import argparse
import json
import time
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any

from ncclscope.capture.dump_events import EVENT_NAMES, events_of
from ncclscope.capture.dump_ranges import RANGE, range_events
from ncclscope.capture.process import Process
from ncclscope.capture.reader import is_dataset, none_readable, open_capture, resolve_capture
from ncclscope.cli.messages import print_message
from ncclscope.cli.rank_arguments import ranks_of_options
from ncclscope.cli.removed_logs import warn_of_removed_logs
from ncclscope.errors import UsageError
from ncclscope.humanize import plural, printable, ranks_in_words
from ncclscope.model.completeness import SIMULATION
from ncclscope.system.sample_files import VERSION, SampleFile, read_sample_file, sample_files_in

_ALL = 1 << 40  # samples


def _line(event: dict[str, Any], origin_ns: int) -> str:
    """The line of an event."""
    start = (event["start_ns"] - origin_ns) / 1e3
    length = (
        "open"
        if event["stop_ns"] is None
        else f"{(event['stop_ns'] - event['start_ns']) / 1e3:.3f}"
    )
    fields = " ".join(
        f"{name}={value}" for name, value in event["fields"].items() if value not in (None, "")
    )
    states = " ".join(
        f"{_state_name(state, event['event'])}@+{(state['t_ns'] - event['start_ns']) / 1e3:.3f}"
        for state in event["states"]
    )
    rank = "-" if event["rank"] is None else event["rank"]
    return (
        f"{start:14.3f} {length:>12} {rank:>5} {event['thread'] or '-':>8} {event['event']:<13}"
        f"{event['id']:>10} < {event['parent'] or '-':<10} {fields}"
        + (f"  states {states}" if states else "")
    )


def _state_name(state: dict[str, Any], event: str) -> str:
    """NCCL's name of a state without that of its event, which is on the same line."""
    return (state["name"] or str(state["state"])).removeprefix(event)


def _event_names(names: list[str]) -> list[str]:
    """The events by NCCL's spelling."""
    events = (*EVENT_NAMES, RANGE)
    spelled = {name.casefold(): name for name in events}
    unknown = [name for name in names if name.casefold() not in spelled]
    if unknown:
        message = f"cannot choose events: {', '.join(unknown)}: NCCL has no such event"
        raise UsageError(message, f"Events are {', '.join(events)}")
    return [spelled[name.casefold()] for name in names]


def _warn_of_profile_mode(processes: list[Process]) -> None:
    """Says which processes recorded no events: an empty table would look like an idle job."""
    without = sum(process.identity.get("mode") == "profile" for process in processes)
    if without:
        print_message(
            f"ncclscope: {plural(without, 'process', 'processes')} recorded in mode profile: "
            "totals, no events. `ncclscope report` shows them; record with --mode trace to get "
            "events",
        )


def _check_options(arguments: argparse.Namespace) -> None:
    """Raises if options do not go together."""
    of_events = [name for name in ("event", "rank") if getattr(arguments, name)]
    of_samples = [name for name in ("host", "device") if getattr(arguments, name)]
    if arguments.system and of_events:
        hint = "Choose samples by --host and --device, or leave --system out"
        raise UsageError(f"--{of_events[0]} chooses events, --system prints samples", hint)
    if of_samples and not arguments.system:
        hint = "Add --system, or choose events by --event and --rank"
        raise UsageError(f"--{of_samples[0]} chooses samples of the machine", hint)


def _sample_files(path: Path, hosts: list[str] | None) -> list[SampleFile]:
    """The sample files of these hosts; of all hosts without any."""
    files = [read_sample_file(file_path, most_samples=_ALL) for file_path in sample_files_in(path)]
    for file in files:
        problem = plural(file.damaged, "line") + " that cannot be read" if file.damaged else ""
        if file.newer:
            problem = (
                f"its format {file.version} is newer than this release reads ({VERSION}): "
                "upgrade ncclscope"
            )
        if problem:
            print_message(f"ncclscope: {printable(file.path.name)}: {problem}")
    readable = [file for file in files if not file.newer]
    if not readable:
        message = f"cannot dump samples of {path}: there are none"
        hint = "" if files else "Record with `ncclscope run --system`"
        raise UsageError(message + (" that this release can read" if files else ""), hint)
    of_hosts = [file for file in readable if not hosts or file.host in hosts]
    if not of_hosts:
        present = ", ".join(sorted({printable(file.host) for file in readable}))
        message = f"cannot dump samples of {', '.join(hosts or ())}: no such host in {path}"
        raise UsageError(message, f"There are samples of {present}")
    return of_hosts


def _dump_samples(arguments: argparse.Namespace, path: Path) -> int:
    """Prints the samples of all files, one file after the other."""
    files = _sample_files(path, arguments.host)
    devices = {d.name for file in files for span in file.spans for d, _ in span.layout}
    if arguments.device and not devices.intersection(arguments.device):
        message = f"cannot dump samples of {', '.join(arguments.device)}: no such device"
        raise UsageError(message, f"There are {printable(', '.join(sorted(devices)[:32]))}")
    if not arguments.json:
        print(f"{'time':<23} {'host':<16} {'device':<12} numbers")
    for file in files:
        for sample in file.in_order():
            for device, numbers in sample.numbers.items():
                if not numbers or (arguments.device and device.name not in arguments.device):
                    continue
                row = {
                    "monotonic_ns": sample.monotonic_ns, "realtime_ns": sample.realtime_ns,
                    "host": file.host, "kind": device.kind, "device": device.name,
                    "facts": device.facts, "numbers": numbers,
                }  # fmt: skip
                print(json.dumps(row) if arguments.json else printable(_sample_line(row)))
    return 0


def _sample_line(row: dict[str, Any]) -> str:
    """The line of one device's sample."""
    seconds, ns = divmod(row["realtime_ns"], 1_000_000_000)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    numbers = " ".join(f"{name}={value}" for name, value in row["numbers"].items())
    return f"{when}.{ns // 1_000_000:03d} {row['host']:<16} {row['device']:<12} {numbers}"


def _events(
    process: Process, nonces: dict[int, str], names: list[str] | None
) -> Iterator[dict[str, Any]]:
    """Communicators, then NCCL's events and the program's ranges in the order of their starts."""
    wanted = None if names is None else [name for name in names if name != RANGE]
    events = events_of(process, nonces, wanted)
    if names is not None and RANGE not in names:
        yield from events
        return

    def order(event: dict[str, Any]) -> tuple[bool, int]:
        return event["event"] != "Comm", 0 if event["event"] == "Comm" else event["start_ns"]

    yield from merge(events, range_events(process), key=order)


def run(arguments: argparse.Namespace) -> int:
    """Prints the events of all processes, one process after the other, or the samples."""
    _check_options(arguments)
    events = _event_names(arguments.event or []) or None
    ranks = ranks_of_options(arguments.rank)
    path = resolve_capture(arguments.capture)
    if arguments.system:
        return _dump_samples(arguments, path)
    if is_dataset(path):
        raise UsageError(f"cannot dump {path}: a dataset has no events", "Name a capture")
    capture = open_capture(path)
    if not capture.processes:
        raise none_readable(path, capture.unreadable)
    for problem in capture.unreadable:
        print_message(f"ncclscope: {problem}")
    processes = [p for p in capture.processes if ranks is None or p.rank in ranks]
    if not processes:
        present = tuple(sorted({p.rank for p in capture.processes if p.rank is not None}))
        message = f"cannot dump {ranks_in_words(ranks or ())}: no such process in {path}"
        raise UsageError(message, f"There are {ranks_in_words(present)}" if present else "")
    nonces = {process.header.nonce: process.folder for process in capture.processes}
    origin = min((int(p.clock.monotonic_ns[0]) for p in capture.processes), default=0)
    if not arguments.json:
        print(
            f"{'start us':>14} {'length us':>12} {'rank':>5} {'thread':>8} {'event':<13}"
            f"{'id':>10} < parent     fields"
        )
    _warn_of_profile_mode(processes)
    warn_of_removed_logs(path, "there are no events")
    if any(process.identity.get("simulation") for process in processes):
        print_message(f"ncclscope: {SIMULATION}")
    for process in processes:
        for event in _events(process, nonces, events):
            print(json.dumps(event) if arguments.json else printable(_line(event, origin)))
    return 0
