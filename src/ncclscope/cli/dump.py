"""`ncclscope dump`."""

import argparse
import json
import sys
from typing import Any

from ncclscope.capture.events import events_of
from ncclscope.capture.reader import open_capture, resolve_capture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, which events, and in which form."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per event; see docs/dump.md"
    )
    parser.add_argument(
        "--event", action="append", metavar="NAME", help="only these events, by NCCL's name"
    )
    parser.add_argument(
        "--rank", action="append", type=int, metavar="R", help="only these global ranks"
    )


def _line(event: dict[str, Any], origin_ns: int) -> str:
    """One event on one line, for people."""
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
        f"{s['state']}@+{(s['t_ns'] - event['start_ns']) / 1e3:.3f}" for s in event["states"]
    )
    rank = "-" if event["rank"] is None else event["rank"]
    return (
        f"{start:14.3f} {length:>12} {rank:>5} {event['thread'] or '-':>8} {event['event']:<13}"
        f"{event['id']:>10} < {event['parent'] or '-':<10} {fields}"
        + (f"  states {states}" if states else "")
    )


def _shown(text: str) -> str:
    """Names come from the job: control characters must not reach a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def run(arguments: argparse.Namespace) -> int:
    """Prints the events of all processes, one process after the other."""
    path = resolve_capture(arguments.capture)
    capture = open_capture(path)
    for problem in capture.unreadable:
        print(f"ncclscope: {problem}", file=sys.stderr)
    nonces = {process.header.nonce: process.folder for process in capture.processes}
    origin = min((int(p.clock.monotonic_ns[0]) for p in capture.processes), default=0)
    if not arguments.json:
        print(
            f"{'start us':>14} {'length us':>12} {'rank':>5} {'thread':>8} {'event':<13}"
            f"{'id':>10} < parent     fields"
        )
    for process in capture.processes:
        if arguments.rank and process.rank not in arguments.rank:
            continue
        for event in events_of(process, nonces):
            if arguments.event and event["event"] not in arguments.event:
                continue
            print(json.dumps(event) if arguments.json else _shown(_line(event, origin)))
    return 0 if capture.processes else 1
