"""What a server allows its clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server allows its clients."""

    connections: int = 256
    from_address: int = 128  # connections of one address of another machine
    for_loopback: int = 32  # of all connections, places that other machines do not get
    request_bytes: int = 16 << 10  # of a request's head; there is no body
    query_fields: int = 32
    request_s: float = 10.0  # until the next request is complete
    response_s: float = 30.0  # until a client has taken its response
    threads: int = 4  # that make responses; 0: they are made between requests, at once
