"""Ports for processes that a test starts later."""

import random
import socket

# Below those that the kernel gives to whoever asks for any port: another test would get one of
# these between the choice and its use.
_FIRST, _LAST = 20_000, 32_000
_CHOICE = random.SystemRandom()  # tests of other processes choose, too


def free_port() -> int:
    """A port that nobody listens at now."""
    while True:
        port = _CHOICE.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
