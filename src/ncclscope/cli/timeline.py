"""`ncclscope timeline`."""

import argparse
import os
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path

from ncclscope.analysis.counted_completeness import completeness_with_counts, has_counters_only
from ncclscope.analysis.selection import Selection
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.messages import print_message
from ncclscope.cli.progress import open_model_with_progress, progress_line
from ncclscope.cli.removed_logs import warn_of_left_out_tables, warn_of_removed_logs
from ncclscope.cli.selection_options import selection_of
from ncclscope.errors import UsageError
from ncclscope.http.allowed_hosts import is_loopback, netloc
from ncclscope.humanize import amount, printable
from ncclscope.output_files import check_file, size_written
from ncclscope.web.page_server import PageServer
from ncclscope.web.perfetto_ui import POLICY, TRACE, PerfettoRoutes, perfetto_folder, trace_address
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
from ncclscope.web.single_file import write_html

_SELECTION_OPTIONS = ("comm", "op", "rank", "since", "until", "last")


def run(arguments: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C, or writes it into a file."""
    if arguments.perfetto:
        return _show_in_perfetto(arguments)
    selects = any(getattr(arguments, name) is not None for name in _SELECTION_OPTIONS)
    if selects and not arguments.html:
        message = "cannot select a part of a page that is served"
        hint = "It has filters of its own; --html FILE and --perfetto show a part"
        raise UsageError(message, hint)
    if arguments.html:
        check_file(arguments.html)
    timeline = Timeline(resolve_capture(arguments.capture))
    warn_of_removed_logs(timeline.capture, "there are no callbacks")
    warn_of_left_out_tables(timeline.capture)
    if arguments.html:
        return _write(timeline, arguments)
    server = PageServer(Routes(timeline), arguments.host, arguments.port)
    timeline.start()
    what = f"timeline of {printable(str(timeline.capture))}"
    _serve(server, server.addresses, what, not arguments.no_open)
    timeline.stop()
    return 0


def _show_in_perfetto(arguments: argparse.Namespace) -> int:
    """Writes a trace of the selection and serves it with the UI."""
    # Imported here: it needs the query engine, for which the page should not wait.
    from ncclscope.export.perfetto import write_perfetto

    folder = perfetto_folder()
    model = open_model_with_progress(resolve_capture(arguments.capture))
    selection: Selection = selection_of(model, arguments)
    with tempfile.TemporaryDirectory(prefix="ncclscope-perfetto-") as directory:
        trace = Path(directory) / TRACE
        write_perfetto(model, selection, trace)
        routes = PerfettoRoutes(folder, trace)
        server = PageServer(routes, arguments.host, arguments.port, POLICY)
        what = f"{printable(str(model.path))} in Perfetto, {amount(trace.stat().st_size)}"
        addresses = [trace_address(address) for address in server.addresses]
        _serve(server, addresses, what, not arguments.no_open)
    return 0


def _write(timeline: Timeline, arguments: argparse.Namespace) -> int:
    """Writes the page, or the selected part of it, into a file."""
    path: Path = arguments.html
    progress = progress_line("drawing {done:,} of {of:,} rows …")
    model = open_model_with_progress(timeline.capture)
    selection = selection_of(model, arguments)
    timeline.make()
    left_out = write_html(timeline, path, selection=selection, progress=progress)
    if has_counters_only(model):
        hint = "it has totals only; record with --mode trace to see operations"
        print_message(f"ncclscope: the page is empty: {hint}")
    print_message(f"ncclscope: {completeness_with_counts(model).line()}")
    if left_out:
        hint = "--last 10s, --rank or --comm choose a part, of which more is drawn"
        print_message(f"           {left_out}", f"           {hint}")
    size = size_written(path)
    if size is not None:
        print_message(f"           written: {printable(str(path))}, {amount(size)}")
    timeline.stop()
    return 0


def _serve(server: PageServer, addresses: list[str], what: str, opens: bool) -> None:
    """Prints the addresses and answers until Ctrl-C."""
    server.start()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    print(*addresses, sep="\n", flush=True)
    print_message(f"ncclscope: {what}, until Ctrl-C")
    if not _has_display():
        if is_loopback(server.host):
            print_message(f"           {_forwarding_hint(server)}")
    elif opens:
        webbrowser.open(addresses[0])
    while not stop.wait(0.5):
        pass
    server.stop()


def _has_display() -> bool:
    """Whether a browser can open a window here; else it would open in the terminal."""
    if not sys.platform.startswith("linux"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _forwarding_hint(server: PageServer) -> str:
    """How a browser on another machine reaches a server on loopback."""
    target = netloc(server.host, server.port)
    command = f"ssh -L {server.port}:{target} {printable(socket.gethostname())}"
    return f"from another machine: `{command}` there, then open that address"
