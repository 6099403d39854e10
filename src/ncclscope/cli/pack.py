"""`ncclscope pack`."""

import argparse
from pathlib import Path

from ncclscope.capture.pack import pack
from ncclscope.capture.reader import resolve_capture
from ncclscope.humanize import amount, plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to pack, where the archive goes, and what is replaced."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="(default: CAPTURE.tar.gz here)")
    parser.add_argument(
        "--replace-hosts", action="store_true", help="host1, host2, … for host names"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the archive, and prints what was removed and what is in it."""
    capture = resolve_capture(arguments.capture)
    archive = Path(arguments.output or f"{capture.resolve().name}.tar.gz")
    count = pack(capture, archive, arguments.replace_hosts)
    print(f"{archive}: {plural(count, 'file')}, {amount(archive.stat().st_size)}")
    print("Removed: command lines, paths, addresses of hosts, and all variables but NCCL's and the")
    print("launchers' ranks and sizes.")
    if arguments.replace_hosts:
        print("Replaced: the names of its hosts, and NCCL_HOSTID.")
    else:
        print("In it: the names of its hosts (--replace-hosts replaces them).")
    print("In it as they are: names of communicators and threads, and ids of GPUs.")
    return 0
