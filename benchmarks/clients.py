"""`ncclscope serve` beside clients that keep it waiting: silent ones, and ones that trickle."""

import multiprocessing
import selectors
import socket
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.support.metrics_server import serving
from tests.support.writer import SyntheticSpec, synthetic

EACH = 500  # clients of a kind
TRICKLE_S = 4.0  # between two bytes of a client that trickles
MEASURED_S, SCRAPE_EVERY_S = 60.0, 0.5
BAR_MS = 1000.0
KINDS = {"silent": (EACH, 0), "trickling": (0, EACH), "both": (EACH, EACH)}


def _keep_waiting(port: int, silent: int, trickling: int, ready: "multiprocessing.Event") -> None:
    """Connects again whenever the server closes a connection."""
    chosen = selectors.DefaultSelector()

    def connect(trickles: bool) -> None:
        link = socket.create_connection(("127.0.0.1", port), timeout=30)
        link.setblocking(False)
        chosen.register(link, selectors.EVENT_READ, trickles)

    for number in range(silent + trickling):
        connect(number >= silent)
    ready.set()
    next_byte = time.monotonic()
    while True:
        for key, _ in chosen.select(0.2):
            link, trickles = key.fileobj, key.data
            assert isinstance(link, socket.socket)
            chosen.unregister(link)
            link.close()
            connect(trickles)
        if time.monotonic() >= next_byte:
            next_byte += TRICKLE_S
            for key in list(chosen.get_map().values()):
                if key.data and isinstance(key.fileobj, socket.socket):
                    try:
                        key.fileobj.send(b"G")
                    except OSError:
                        continue


def _measure(address: str, silent: int, trickling: int) -> list[float]:
    """Times of scrapes in ms; one that fails takes as long as it may."""
    ready = multiprocessing.Event()
    port = int(address.rpartition(":")[2])
    clients = multiprocessing.Process(
        target=_keep_waiting, args=(port, silent, trickling, ready), daemon=True
    )
    clients.start()
    ready.wait(60)
    times_ms, end = [], time.monotonic() + MEASURED_S
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
                answer.read()
            times_ms.append((time.monotonic() - began) * 1e3)
        except OSError:
            times_ms.append(10_000.0)
        time.sleep(SCRAPE_EVERY_S)
    clients.kill()
    clients.join()
    return times_ms


def main() -> None:
    """Measures all kinds of clients."""
    rows: list[list[object]] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        capture = Path(directory) / "capture"
        synthetic(capture, SyntheticSpec(processes=4, operations=200))
        for name, (silent, trickling) in KINDS.items():
            with serving(capture, "--all-hosts") as address:
                times_ms = sorted(_measure(address, silent, trickling))
            slowest = max(slowest, times_ms[-1])
            failed = sum(ms >= 10_000 for ms in times_ms)
            middle = times_ms[len(times_ms) // 2]
            row = [name, silent + trickling, len(times_ms), failed]
            rows.append([*row, f"{middle:.1f}", f"{times_ms[-1]:.0f}"])
    header = ["clients", "how many", "scrapes", "failed", "median ms", "slowest ms"]
    note = (
        "Clients are on the same machine and connect again as soon as they are dropped. Trickling "
        f"ones send a byte every {TRICKLE_S:.0f} s. A scrape is due within {BAR_MS / 1e3:.0f} s."
    )
    publish("clients", f"{table(header, rows)}\n\n{note}")
    if slowest > BAR_MS:
        raise SystemExit(f"a scrape took {slowest:.0f} ms")
