"""`ncclscope pack`."""

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

from ncclscope.capture.pack import pack
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.removed_logs import warn_of_removed_logs
from ncclscope.errors import UsageError
from ncclscope.humanize import amount, plural, printable
from ncclscope.output_files import check_file, is_stdout, size_written

_OTHER_ARCHIVES = (".zip", ".7z", ".zst", ".xz", ".bz2", ".rar")


def run(arguments: argparse.Namespace) -> int:
    """Writes the archive, and prints what was removed and what is in it."""
    capture = resolve_capture(arguments.capture)
    archive = Path(arguments.output or f"{capture.resolve().name}.tar.gz")
    if archive.suffix in _OTHER_ARCHIVES:
        message = f"cannot write {archive}: the archive is a compressed tar file"
        raise UsageError(message, f"Give it a name that ends in .tar.gz: {archive.stem}.tar.gz")
    check_file(archive)
    warn_of_removed_logs(capture, "there are no operations in the archive")
    count = pack(capture, archive, arguments.replace_hosts)
    about = sys.stderr if is_stdout(archive) else sys.stdout
    with redirect_stdout(about):
        _say_contents(archive, count, arguments)
    return 0


def _say_contents(archive: Path, count: int, arguments: argparse.Namespace) -> None:
    size = size_written(archive)
    of_size = f", {amount(size)}" if size is not None else ""
    print(f"{printable(str(archive))}: {plural(count, 'file')}{of_size}")
    print("Removed: command lines, paths, addresses of hosts, and all variables but NCCL's")
    print("and the launchers' ranks and sizes.")
    if arguments.replace_hosts:
        print("Replaced: the names of its hosts, and NCCL_HOSTID.")
    else:
        print("In it: the names of its hosts (--replace-hosts replaces them).")
    print("In it as they are: names of communicators and threads, and ids of GPUs.")
