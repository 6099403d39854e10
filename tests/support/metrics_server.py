"""`ncclscope serve` in a process of its own."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError


@contextmanager
def serving(*arguments: str | Path) -> Iterator[str]:
    """The address of a server."""
    words = [sys.executable, "-m", "ncclscope", "serve", "--port", "0", *map(str, arguments)]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr
        found = re.search(r"http://[^/]+", server.stderr.readline())
        assert found
        yield found[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        assert server.returncode == 0


def fetch(url: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type, body."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()
