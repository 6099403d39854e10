"""Names and addresses of this machine: which a request may use, and which others can use."""

import contextlib
import ipaddress
import socket
from functools import lru_cache

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Documentation addresses (RFC 5737, RFC 3849). Nothing is sent to them: connecting a UDP socket
# only asks the kernel which address of this machine it would use.
_OUTSIDE = {socket.AF_INET: "203.0.113.1", socket.AF_INET6: "2001:db8::1"}


def address_family(host: str) -> socket.AddressFamily:
    """The family of an address to listen on."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    address = _parse_address(host)
    return address.is_loopback if address else host.casefold() == "localhost"


class AllowedHosts:
    """Decides which values of the Host header a server that listens on `host` answers.

    This stops DNS rebinding: a page of another site whose name was made to resolve to this machine
    sends that site's name. An address cannot be faked like that, so a server that listens on all
    addresses answers to any address of this machine.

    With `from_anywhere` a public server answers to every name, and one on loopback on every port:
    scrapers come by names that this machine does not know, such as a Kubernetes service, and
    through forwarded ports.
    """

    def __init__(self, host: str, port: int, from_anywhere: bool = False) -> None:
        self._port, self._is_public = str(port), not is_loopback(host)
        self._from_anywhere = from_anywhere
        self._names = {str(_parse_address(host) or host.casefold()), *_LOOPBACK}
        if self._is_public:
            full, short = socket.getfqdn().casefold(), socket.gethostname().casefold()
            self._names |= {full, short, short.partition(".")[0]}

    def allows(self, host_header: str) -> bool:
        """Whether a request with this Host header is answered."""
        name, port = _split_host(host_header.strip().casefold())
        if self._from_anywhere:
            return self._is_public or self._allows_name(name)
        return port == self._port and self._allows_name(name)

    def _allows_name(self, name: str) -> bool:
        address = _parse_address(name)
        if address is None:
            return name.removesuffix(".") in self._names
        return str(address) in self._names or (self._is_public and _is_local(str(address)))


def reachable_hosts(host: str) -> list[str]:
    """Names by which other machines reach a server that listens on `host`, the best first.

    For a server on all addresses: the address of the default route, and the machine's name if it
    resolves to that address.
    """
    address = _parse_address(host)
    if address is None or not address.is_unspecified:
        return [host]
    family = address_family(host)
    name, default = socket.gethostname(), _default_address(family)
    resolved = _resolve(name, family)
    if default is None:
        return [next((address for address in resolved if not is_loopback(address)), name)]
    return [default, name] if default in resolved else [default]


def netloc(host: str, port: int) -> str:
    """Host and port as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split_host(host_header: str) -> tuple[str, str]:
    """Name and port of a Host header; an IPv6 address without its brackets."""
    name, colon, port = host_header.rpartition(":")
    if not colon or host_header.endswith("]"):
        name, port = host_header, "80"
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        return "", ""
    return name.strip("[]"), port


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _is_local(address: str) -> bool:
    """Whether an address belongs to this machine: only then can a socket be bound to it."""
    if ipaddress.ip_address(address).is_unspecified:
        return False
    with socket.socket(address_family(address), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _default_address(family: socket.AddressFamily) -> str | None:
    """This machine's address on its default route; None where it has no such route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_OUTSIDE[family], 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _resolve(name: str, family: socket.AddressFamily) -> list[str]:
    try:
        answers = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(answer[4][0]) for answer in answers]
