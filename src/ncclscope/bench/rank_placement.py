"""Which ranks this process starts, and where they meet: alone, in a launcher, or by host list."""

import contextlib
import hashlib
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from ncclscope import launchers
from ncclscope.errors import UsageError

PORT = 29477
_TOKEN_VARIABLE = "NCCLSCOPE_BENCH_TOKEN"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """The ranks that this process starts, out of all, and where all meet."""

    ranks: int
    mine: tuple[int, ...]
    host: str  # rank 0's, as others reach it
    port: int  # 0: any that is free
    token: str
    launcher: str = ""  # what started this process as one of many

    @property
    def leads(self) -> bool:
        """Whether this process coordinates and shows the results."""
        return 0 in self.mine

    def device(self, rank: int, devices: int | None, environment: Mapping[str, str]) -> int:
        """The GPU of a rank, by its place on this host."""
        local = self.mine.index(rank)
        if self.launcher:
            local = launchers.local_rank(environment) or 0
        return local % devices if devices else local


def alone(ranks: int) -> RankPlacement:
    """All ranks are processes of this one's, on this host."""
    return RankPlacement(ranks, tuple(range(ranks)), LOOPBACK, 0, secrets.token_hex(16))


def first_host(nodes: str) -> str:
    """The first of Slurm's list of nodes. gpu[003-007,9],x1 -> gpu003"""
    found = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in found.groups()) if found else nodes


def _job(environment: Mapping[str, str]) -> str:
    """What the ranks of one job know and others do not guess by accident."""
    said = environment.get(_TOKEN_VARIABLE)
    names = (*launchers.JOB_VARIABLES, "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID")
    text = said or "|".join(environment.get(name, "") for name in names)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def inside_launcher(environment: Mapping[str, str], address: str | None) -> RankPlacement | None:
    """The one rank that torchrun, mpirun or srun made of this process; None: there is none."""
    rank = launchers.global_rank(environment)
    ranks = launchers.first_number(environment, launchers.WORLD_SIZE_VARIABLES)
    if rank is None or ranks is None:
        return None
    if rank >= ranks:
        raise UsageError(f"this process is rank {rank} of {ranks}", "Check RANK and WORLD_SIZE")
    launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in environment else "a launcher"
    host, port = parse_address(address) if address else (None, None)
    if host is None and environment.get("MASTER_ADDR"):
        host = environment["MASTER_ADDR"]
        said = environment.get("MASTER_PORT") or "0"
        if not re.fullmatch(r"\d{1,5}", said):
            raise UsageError(f"MASTER_PORT={said} is no port", "Set it to a number, or unset it")
        port = 1 + (int(said) or PORT) % 65534  # MASTER_PORT itself is the launcher's
    if host is None:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
        one_host = launchers.first_number(environment, launchers.LOCAL_SIZE_VARIABLES) == ranks
        host = LOOPBACK if one_host else first_host(nodes) if nodes else None
    if host is None:
        message = f"rank {rank} does not know where rank 0 is"
        raise UsageError(message, "Say on which host rank 0 runs: --address HOST[:PORT]")
    return RankPlacement(ranks, (rank,), host, port or PORT, _job(environment), launcher)


def parse_address(text: str) -> tuple[str, int]:
    """host, host:port or [v6]:port"""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", text)
    if not found or int(found[3] or 0) > 65535:
        raise UsageError(f"{text} is no address", "Addresses are HOST or HOST:PORT")
    return found[1] or found[2], int(found[3] or PORT)


def _own_names() -> set[str]:
    """Names and addresses of this host."""
    name = socket.gethostname()
    found = {name, name.partition(".")[0]}
    with contextlib.suppress(OSError):
        found |= {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    return found


def _is_own(host: str, own: set[str]) -> bool:
    """Whether a name is this host's: one that it calls itself, or an address that it can bind."""
    if host in own:
        return True
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, _, _, address in addresses:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False


def by_hosts(hosts: list[str], number: int | None, per_host: int, token: str) -> RankPlacement:
    """The ranks of this host in a list that is the same on all of them; the first has rank 0."""
    parsed = [parse_address(host) for host in hosts]
    if number is None:
        own = _own_names()
        mine = [place for place, (host, _) in enumerate(parsed) if _is_own(host, own)]
        if len(mine) != 1:
            found = "none" if not mine else "several"
            message = f"cannot tell which of {', '.join(hosts)} this host is: {found} of them"
            raise UsageError(message, "Say it with --host-number, from 0")
        number = mine[0]
    if not 0 <= number < len(hosts):
        raise UsageError(f"there is no host {number}", f"Hosts are numbered 0 to {len(hosts) - 1}")
    host, port = parsed[0]
    first = number * per_host
    ranks = per_host * len(hosts)
    return RankPlacement(ranks, tuple(range(first, first + per_host)), host, port, token, "")


def hosts_token(hosts: list[str], environment: Mapping[str, str]) -> str:
    """What the hosts of one list know; NCCLSCOPE_BENCH_TOKEN makes it a secret."""
    text = environment.get(_TOKEN_VARIABLE) or ",".join(hosts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
