"""What this machine is called: the names a request may use, and those that others can use."""

import contextlib
import ipaddress
import socket

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Nothing is sent there: the kernel only says from which address it would be.
_ELSEWHERE = {socket.AF_INET: "203.0.113.1", socket.AF_INET6: "2001:db8::1"}


def family_of(host: str) -> socket.AddressFamily:
    """How an address to listen on is written."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    address = _address(host)
    return address.is_loopback if address else host.casefold() == "localhost"


class Names:
    """Decides which values of the Host field mean the server that listens on `host`.

    A page of another site whose name was made to resolve to this machine sends its own name, which
    is none of ours. Numbers cannot be bent like that: any address of this machine is fine.
    """

    def __init__(self, host: str, port: int) -> None:
        self._port, self._public = str(port), not is_loopback(host)
        self._names = {str(_address(host) or host.casefold()), *_LOOPBACK}
        if self._public:
            full, short = socket.getfqdn().casefold(), socket.gethostname().casefold()
            self._names |= {full, short, short.partition(".")[0]}

    def mean_us(self, field: str) -> bool:
        """Whether a request with this Host field is for us."""
        name, port = _split(field.strip().casefold())
        if port != self._port:
            return False
        address = _address(name)
        if address is None:
            return name.removesuffix(".") in self._names
        return str(address) in self._names or (self._public and _is_own(str(address)))


def reachable(host: str) -> list[str]:
    """What other machines can call the one that listens on `host`, best first: of all addresses
    that of the default route, and the machine's name if it leads there.
    """
    address = _address(host)
    if address is None or not address.is_unspecified:
        return [host]
    family = family_of(host)
    name, mine = socket.gethostname(), _default_address(family)
    known = _resolved(name, family)
    if mine is None:
        return [next((one for one in known if not is_loopback(one)), name)]
    return [mine, name] if mine in known else [mine]


def in_url(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(field: str) -> tuple[str, str]:
    """Name and port of a Host field, an IPv6 address without its brackets."""
    name, colon, port = field.rpartition(":")
    if not colon or field.endswith("]"):
        name, port = field, "80"
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        return "", ""
    return name.strip("[]"), port


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _is_own(address: str) -> bool:
    """Whether an address is one of this machine's, which the kernel knows best."""
    if ipaddress.ip_address(address).is_unspecified:
        return False
    with socket.socket(family_of(address), socket.SOCK_STREAM) as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


def _default_address(family: socket.AddressFamily) -> str | None:
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        try:
            one.connect((_ELSEWHERE[family], 9))
        except OSError:  # no way out of here
            return None
        return str(one.getsockname()[0])


def _resolved(name: str, family: socket.AddressFamily) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(one[4][0]) for one in found]
