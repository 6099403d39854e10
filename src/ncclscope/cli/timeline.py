"""`ncclscope timeline`."""

import argparse
import signal
import sys
import threading
import webbrowser

from ncclscope.capture.reader import resolve_capture
from ncclscope.web.routes import Routes
from ncclscope.web.server import Server
from ncclscope.web.timeline import Timeline
from ncclscope.words import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, and where its page is served."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine alone)"
    )
    parser.add_argument("--port", type=int, default=0, help="port (default: any that is free)")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")


def run(arguments: argparse.Namespace) -> int:
    """Serves the page until it is interrupted."""
    capture = resolve_capture(arguments.capture)
    timeline = Timeline(capture)
    server = Server(Routes(timeline), arguments.host, arguments.port)
    timeline.start()
    server.start()
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    print(server.address, flush=True)
    print(f"ncclscope: timeline of {printable(str(capture))}, until Ctrl-C", file=sys.stderr)
    if not arguments.no_open:
        webbrowser.open(server.address)
    try:
        while not done.wait(0.5):
            pass
    finally:
        server.stop()
        timeline.stop()
    return 0
