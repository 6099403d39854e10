"""`ncclscope decode`."""

import argparse

from ncclscope.arrays.memory_limit import limit_memory
from ncclscope.capture.reader import is_dataset, resolve_capture
from ncclscope.cli.engine_options import engine_on
from ncclscope.cli.progress import progress_line
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import amount, plural
from ncclscope.model.decode_capture import Decoding, decode_capture


def run(arguments: argparse.Namespace) -> int:
    """Decodes a capture's finished processes, and prints what became of them."""
    limit_memory()
    capture = resolve_capture(arguments.capture)
    if is_dataset(capture):
        message = f"cannot decode {capture}: it is a dataset, which has no logs"
        raise UsageError(message, "Its operations are decoded already")
    try:
        progress = progress_line("decoding {done:,} of {of:,} processes …")
        decoding = decode_capture(capture, arguments.remove_raw, progress, engine_on(arguments.on))
        if progress:
            progress(1, 1)
    except OSError as error:
        message = f"cannot decode {capture}: {error.strerror or error}"
        raise NcclscopeError(message, "What was decoded before stays, and no log is lost") from None
    for line in _lines(decoding, arguments.remove_raw):
        print(line)
    return 0


def _lines(decoding: Decoding, remove_raw: bool) -> list[str]:
    processes = plural(decoding.decoded, "process", "processes")
    lines = [f"decoded: {processes}"]
    if decoding.decoded:
        sizes = f"{amount(decoding.log_bytes)} of logs as {amount(decoding.decoded_bytes)}"
        lines[0] += f", {sizes}"
    if decoding.before:
        lines.append(f"decoded before: {plural(decoding.before, 'process', 'processes')}")
    if decoding.without_log:
        without = plural(decoding.without_log, "process", "processes")
        lines.append(f"nothing to decode: {without} without a log")
    for reason, number in sorted(decoding.kept.items()):
        lines.append(f"log kept: {plural(number, 'process', 'processes')} {reason}")
    if remove_raw:
        lines.append(f"removed: {amount(decoding.removed_bytes)} of logs")
    return lines
