"""Which ranks this process starts, and where rank 0 listens: on this host alone, in a launcher's
job, or by a list of hosts.
"""

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
    """The ranks that this process starts, and the address of rank 0's coordinator."""

    ranks: int  # of the benchmark
    local_ranks: tuple[int, ...]  # that this process starts
    host: str  # the coordinator's, as other hosts reach it
    port: int  # 0: any free one
    token: str
    launcher: str = ""  # what started this process as one rank of a job

    @property
    def leads(self) -> bool:
        """Whether this process coordinates the ranks and shows the results."""
        return 0 in self.local_ranks

    def device(self, rank: int, devices: int | None, environment: Mapping[str, str]) -> int:
        """The GPU of a rank, by its number on this host."""
        local = self.local_ranks.index(rank)
        if self.launcher:
            local = launchers.local_rank(environment) or 0
        return local % devices if devices else local


def placement_on_this_host(ranks: int) -> RankPlacement:
    """All ranks on this host, started by this process."""
    return RankPlacement(ranks, tuple(range(ranks)), LOOPBACK, 0, secrets.token_hex(16))


def first_host(nodes: str) -> str:
    """The first node of Slurm's list. gpu[003-007,9],x1 -> gpu003"""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else nodes


def _launcher_token(environment: Mapping[str, str]) -> str:
    """A token that the ranks of one job have in common, and ranks of other jobs do not have."""
    names = (*launchers.JOB_VARIABLES, "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID")
    job = "|".join(environment.get(name, "") for name in names)
    return _hash(environment.get(_TOKEN_VARIABLE) or job)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def placement_from_launcher(
    environment: Mapping[str, str], address: str | None
) -> RankPlacement | None:
    """The rank that torchrun, mpirun or srun made this process; None if none of them started it."""
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
        text = environment.get("MASTER_PORT") or "0"
        if not re.fullmatch(r"\d{1,5}", text):
            raise UsageError(f"MASTER_PORT={text} is no port", "Set it to a number, or unset it")
        port = 1 + (int(text) or PORT) % 65534  # the launcher itself uses MASTER_PORT
    if host is None:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
        local_size = launchers.first_number(environment, launchers.LOCAL_SIZE_VARIABLES)
        host = LOOPBACK if local_size == ranks else first_host(nodes) if nodes else None
    if host is None:
        message = f"rank {rank} does not know where rank 0 is"
        raise UsageError(message, "Say on which host rank 0 runs: --address HOST[:PORT]")
    return RankPlacement(ranks, (rank,), host, port or PORT, _launcher_token(environment), launcher)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of HOST, HOST:PORT or [IPV6]:PORT."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", text)
    if not match or int(match[3] or 0) > 65535:
        raise UsageError(f"{text} is no address", "Addresses are HOST or HOST:PORT")
    return match[1] or match[2], int(match[3] or PORT)


def _names_of_this_host() -> set[str]:
    """Names and addresses of this host."""
    name = socket.gethostname()
    names = {name, name.partition(".")[0]}
    with contextlib.suppress(OSError):
        names |= {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    return names


def _is_this_host(host: str, own_names: set[str]) -> bool:
    """Whether a name is this host's: one of its own names, or an address that it can bind."""
    if host in own_names:
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


def placement_from_hosts(
    hosts: list[str], number: int | None, per_host: int, token: str
) -> RankPlacement:
    """The ranks of this host, from a list that all hosts have; the first host has rank 0."""
    addresses = [parse_address(host) for host in hosts]
    if number is None:
        names = _names_of_this_host()
        places = [n for n, (host, _) in enumerate(addresses) if _is_this_host(host, names)]
        if len(places) != 1:
            how_many = "none" if not places else "several"
            message = f"cannot tell which of {', '.join(hosts)} this host is: {how_many} of them"
            raise UsageError(message, "Say it with --host-number, from 0")
        number = places[0]
    if not 0 <= number < len(hosts):
        raise UsageError(f"there is no host {number}", f"Hosts are numbered 0 to {len(hosts) - 1}")
    host, port = addresses[0]
    first = number * per_host
    ranks = per_host * len(hosts)
    return RankPlacement(ranks, tuple(range(first, first + per_host)), host, port, token, "")


def hosts_token(hosts: list[str], environment: Mapping[str, str]) -> str:
    """A token that the hosts of a list have in common; NCCLSCOPE_BENCH_TOKEN makes it a secret."""
    return _hash(environment.get(_TOKEN_VARIABLE) or ",".join(hosts))
