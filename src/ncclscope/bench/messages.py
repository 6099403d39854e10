"""Messages between ranks and who coordinates them: a JSON object and bytes, over a socket.

frame: magic, length of the JSON text, length of the bytes (all little endian), text, bytes
"""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"nsb1"
_MOST_TEXT, _MOST_BYTES = 1 << 20, 1 << 30  # what a stranger could make us keep


class MessageError(Exception):
    """Not a message of ours, or the end of the connection."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one rank says at one point, or what all are answered."""

    said: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""


def encoded(message: Message) -> bytes:
    """The frame."""
    text = json.dumps(message.said).encode()
    return _HEAD.pack(_MAGIC, len(text), len(message.data)) + text + message.data


def decoded(buffer: bytearray) -> Message | None:
    """The first message, taken out of the buffer; None while it is not whole."""
    if len(buffer) < _HEAD.size:
        return None
    magic, text_bytes, data_bytes = _HEAD.unpack_from(buffer)
    if magic != _MAGIC or text_bytes > _MOST_TEXT or data_bytes > _MOST_BYTES:
        raise MessageError("not a message of ncclscope bench")
    whole = _HEAD.size + text_bytes + data_bytes
    if len(buffer) < whole:
        return None
    text = bytes(buffer[_HEAD.size : _HEAD.size + text_bytes])
    data = bytes(buffer[_HEAD.size + text_bytes : whole])
    del buffer[:whole]
    try:
        said = json.loads(text)
    except ValueError:
        raise MessageError("not a message of ncclscope bench") from None
    if not isinstance(said, dict):
        raise MessageError("not a message of ncclscope bench")
    return Message(said, data)


class Connection:
    """A rank's end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.connection = connection
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Sends it whole."""
        try:
            self.connection.sendall(encoded(message))
        except OSError as error:
            raise MessageError(f"connection lost: {error.strerror or error}") from None

    def receive(self) -> Message:
        """Waits for the next one."""
        while True:
            message = decoded(self._buffer)
            if message is not None:
                return message
            try:
                more = self.connection.recv(1 << 16)
            except OSError as error:
                raise MessageError(f"connection lost: {error.strerror or error}") from None
            if not more:
                raise MessageError("connection closed")
            self._buffer += more
