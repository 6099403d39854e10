"""Messages between ranks and their coordinator: a JSON object and bytes, over a socket.

A frame is: magic, length of the JSON text, length of the bytes (little endian), text, bytes.
"""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"nsb1"
_MOST_TEXT, _MOST_BYTES = 1 << 20, 1 << 30  # limits what any client can make a process keep


class MessageError(Exception):
    """Something that is no message, or the end of the connection."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one rank sends at one point, or the reply to all."""

    fields: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""


def encode(message: Message) -> bytes:
    """The frame of a message."""
    text = json.dumps(message.fields).encode()
    return _HEAD.pack(_MAGIC, len(text), len(message.data)) + text + message.data


def decode(buffer: bytearray) -> Message | None:
    """Takes the first message out of the buffer; None while it is incomplete."""
    if len(buffer) < _HEAD.size:
        return None
    magic, text_bytes, data_bytes = _HEAD.unpack_from(buffer)
    if magic != _MAGIC or text_bytes > _MOST_TEXT or data_bytes > _MOST_BYTES:
        raise MessageError("not a message of ncclscope bench")
    frame_bytes = _HEAD.size + text_bytes + data_bytes
    if len(buffer) < frame_bytes:
        return None
    text = bytes(buffer[_HEAD.size : _HEAD.size + text_bytes])
    data = bytes(buffer[_HEAD.size + text_bytes : frame_bytes])
    del buffer[:frame_bytes]
    try:
        fields = json.loads(text)
    except ValueError:
        raise MessageError("not a message of ncclscope bench") from None
    if not isinstance(fields, dict):
        raise MessageError("not a message of ncclscope bench")
    return Message(fields, data)


class RankConnection:
    """A rank's end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.connection = connection
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Sends a message."""
        try:
            self.connection.sendall(encode(message))
        except OSError as error:
            raise MessageError(f"connection lost: {error.strerror or error}") from None

    def receive(self) -> Message:
        """Waits for the next message."""
        while True:
            message = decode(self._buffer)
            if message is not None:
                return message
            try:
                more = self.connection.recv(1 << 16)
            except OSError as error:
                raise MessageError(f"connection lost: {error.strerror or error}") from None
            if not more:
                raise MessageError("connection closed")
            self._buffer += more
