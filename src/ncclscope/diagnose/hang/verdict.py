"""Verdicts about communicators, and how long an operation may take before it counts as a hang.

While a job runs, the limit is max(15 s, 3 x the longest operation of that communicator so far). A
job whose processes are all dead cannot go on: there it is 3 x what 19 of 20 operations did not
exceed, and at least two heartbeats. What was in flight for less when all died is no hang. Dead
processes and ranks that disagree need no limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncclscope.diagnose.hang.communicators import Member, Signature
from ncclscope.humanize import binary_size, ranks_in_words, seconds
from ncclscope.snapshot.process import longest_operation_ns
from ncclscope.snapshot.types import PAIRED, Step

PATIENCE_NS = 15_000_000_000
_ENOUGH = 20  # operations show how long one may take
_TIMES_LONGER = 3
NOTICEABLE_NS = 2_000_000_000
APART_NS = 5_000_000_000  # between last heartbeats: more than processes killed together differ by
_MOST_LOOKED_UP = 16  # ranks whose longest operations are looked up
_MOST_SHOWN = 8
_MOST_HOSTS = 4

OK, WAITING, NEVER_JOINED, NEVER_CALLED = "ok", "waiting", "never_joined", "never_called"
NOT_LAUNCHED, NOT_STARTED, NOT_FINISHED = "not_launched", "not_started", "not_finished"
STALLED, MISMATCH, DEAD, UNKNOWN = "stalled", "mismatch", "dead", "unknown"
CIRCLE, EXTRA_CALL = "circle", "extra_call"
DIRECTION = {"Send": "to", "Recv": "from", "SendRecv": "with"}


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Ranks that called the same."""

    ranks: tuple[int, ...]
    call: Signature


@dataclass(frozen=True, slots=True)
class Pair:
    """A send or receive of one rank, and what of its peer answers it."""

    rank: int
    peer: int
    answer: str  # Recv or Send


@dataclass(frozen=True, slots=True)
class RankActivity:
    """What a rank is doing: an operation, or, since its last call, nothing that NCCL knows of."""

    rank: int
    host: str
    gpu: str
    pid: int
    life: str
    how: str
    communicator: str  # of its last operation, "" where it has none
    function: str
    order: int
    since_ns: int
    in_flight: bool
    step: Step | None = None
    channels: str = ""  # how many of its kernel's channels have started and ended
    peer: int | None = None  # of a send or receive, where it is known
    training: str = ""  # where in its training it is: step 812, backward, layers.17


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one communicator hangs, in what, and who is to blame."""

    name: str
    id: int
    ranks: int
    verdict: str  # OK, WAITING …
    hung: bool = False
    function: str = ""
    order: int = 0
    size_bytes: int = 0
    datatype: str = ""
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    waited_ns: int = 0
    limit_ns: int = 0
    sides: tuple[CallGroup, ...] = ()  # of a mismatch, the largest first
    reason: str = ""
    activities: tuple[RankActivity, ...] = ()  # of culprits, then of ranks that wait
    because_of: str = ""  # a communicator in which its culprits wait themselves
    missing: tuple[int, ...] = ()  # ranks that are not on record
    dead_processes: int = 0  # all of its processes, where none of them runs any more
    unheard: bool = False  # these are of other hosts: dead, or cut off from here
    died_first: bool = False  # its culprits, before the others
    cut_short: bool = False  # all died when it had lasted for a moment
    exited: bool = False  # all its processes have exited by themselves
    circle: tuple[str, ...] = ()  # communicators that wait for each other, in that order
    pair: Pair | None = None  # where it is about a send or receive

    @property
    def is_death(self) -> bool:
        """Whether the sentence is about processes that died."""
        return self.verdict == DEAD or self.cut_short


@dataclass(frozen=True, slots=True)
class Status:
    """The verdicts about all communicators of a capture, at its last moment."""

    verdicts: tuple[Verdict, ...]
    processes: int
    alive: int
    ended: int
    expected: int
    newest_ns: int  # wall clock of the last heartbeat
    post_mortem: bool
    unreadable: tuple[str, ...] = ()
    simulated: bool = False
    quiet_ns: int = 0  # since the last call of any process, where nothing is in flight
    called: bool = True  # some process has made a call
    sees_ends: bool = True  # kernels are recorded: it is known which operations have ended
    unheard: int = 0  # processes of other hosts without heartbeats: dead, or cut off from here

    @property
    def hung(self) -> bool:
        """Whether any communicator is."""
        return any(verdict.hung for verdict in self.verdicts)


def whereabouts(verdict: Verdict, ranks: Sequence[int]) -> str:
    """Where ranks are: node7 GPU 4, 5; pids 811, 812; of many, hosts. "" where it is not known."""
    wanted = set(ranks)
    activities = [activity for activity in verdict.activities if activity.rank in wanted]
    if not activities:
        return ""
    names = list(dict.fromkeys(activity.host for activity in activities))
    if len(activities) > _MOST_SHOWN:
        more = len(names) - _MOST_HOSTS
        text = ", ".join(names[:_MOST_HOSTS]) + (f" and {more:,} more" if more > 0 else "")
        return f"on {text}" if len(names) == 1 else f"on {len(names):,} hosts: {text}"
    hosts = []
    for host in names:
        gpus = [activity.gpu for activity in activities if activity.host == host and activity.gpu]
        hosts.append(host + (f" GPU {', '.join(gpus)}" if gpus else ""))
    pids = ", ".join(str(activity.pid) for activity in activities)
    return f"{'; '.join(hosts)}; pid{'s' if len(activities) > 1 else ''} {pids}"


def operation_in_words(verdict: Verdict) -> str:
    """The operation: AllReduce #21 (1 MiB float32), Recv from rank 2 on rank 3 (64 KiB)."""
    if not verdict.function:
        return f"#{verdict.order}" if verdict.order else ""
    datatype = f" {verdict.datatype}" if verdict.datatype else ""
    size = f"({binary_size(verdict.size_bytes)}{datatype})"
    if verdict.pair is None:
        number = f" #{verdict.order}" if verdict.function not in PAIRED else ""
        return f"{verdict.function}{number} {size}"
    direction = DIRECTION[verdict.function]
    pair = f"{direction} rank {verdict.pair.peer} on rank {verdict.pair.rank}"
    return f"{verdict.function} {pair} {size}"


def answer_in_words(verdict: Verdict) -> str:
    """What culprits never called: the operation, or what answers a send or receive."""
    if verdict.pair is None:
        return "it"
    if len(verdict.culprits) > 1:
        return "what answers it and others"
    return f"the {verdict.pair.answer} that answers it"


def deaths_in_words(verdict: Verdict) -> str:
    """Who died, which of them died first, and what was in flight then."""
    who = ranks_in_words(verdict.culprits)
    where = whereabouts(verdict, verdict.culprits)
    who += f" ({where})" if where else ""
    if verdict.exited and verdict.culprits:
        themselves = "itself" if len(verdict.culprits) == 1 else "themselves"
        return f"{who} exited by {themselves} without calling it"
    if not verdict.dead_processes:
        return f"{who} {'is' if len(verdict.culprits) == 1 else 'are'} dead: {verdict.reason}"
    everybody = {1: "its process is", 2: "both its processes are"}.get(
        verdict.dead_processes, f"all its {verdict.dead_processes:,} processes are"
    )
    everybody += " silent (dead, or cut off from here)" if verdict.unheard else " dead"
    aside = f" ({verdict.reason})" if verdict.reason else ""
    if not verdict.waiting:
        return f"{everybody}{aside}"
    inside = ranks_in_words(verdict.waiting)
    inside += f" {'was' if len(verdict.waiting) == 1 else 'were'} in it"
    inside += f" for {seconds(verdict.waited_ns)}"
    if not verdict.culprits:
        return f"{everybody}{aside}; {inside} then"
    if verdict.died_first:
        return f"{who} died first: {verdict.reason}; {inside}; now {everybody}"
    return f"{everybody}; {inside}, {who} had not called it and may have died first"


def limit_ns(members: Sequence[Member], post_mortem: bool) -> int:
    """How long an operation may take before it counts as hung."""
    used = [member for member in members if member.rank_state.calls or member.rank_state.works]
    some = used[:_MOST_LOOKED_UP]
    times = [longest_operation_ns(m.snapshot, m.rank_state, usually=post_mortem) for m in some]
    longest = max(times, default=0)
    enough = max((m.rank_state.finished for m in some), default=0) >= _ENOUGH
    if post_mortem:
        return _TIMES_LONGER * longest if enough else 0
    return max(PATIENCE_NS, _TIMES_LONGER * longest)


def apply_time_limit(verdict: Verdict, members: Sequence[Member], post_mortem: bool) -> Verdict:
    """The verdict where the wait exceeds the limit; before that `waiting` or `ok`."""
    waited = max((member.waited_ns() for member in members), default=0)
    verdict = replace(verdict, waited_ns=waited)
    guess = verdict.verdict == UNKNOWN and not verdict.culprits
    if waited < NOTICEABLE_NS and (guess or not post_mortem):
        return replace(verdict, verdict=OK, culprits=(), waiting=())
    limit = limit_ns(members, post_mortem)
    verdict = replace(verdict, limit_ns=limit)
    if post_mortem and not guess and (waited < NOTICEABLE_NS or waited <= limit):
        return _cut_short(verdict, unusual=waited > limit)
    if waited <= limit and not post_mortem:
        reason = "it has taken long before" if limit > PATIENCE_NS else ""
        return replace(verdict, verdict=WAITING, reason=reason)
    return replace(verdict, hung=verdict.verdict != UNKNOWN or bool(verdict.culprits))


def _cut_short(verdict: Verdict, unusual: bool) -> Verdict:
    """The verdict about what was in flight for a moment when all died. Ranks that were waited for
    longer than usual may have died first; no others can be blamed.
    """
    if unusual and verdict.verdict == UNKNOWN:
        return replace(verdict, hung=True)
    if unusual and verdict.verdict == NEVER_CALLED:
        return replace(verdict, hung=True, cut_short=True)
    inside = tuple(sorted({*verdict.waiting, *verdict.culprits}))
    waiting = verdict.waiting if verdict.verdict in (NEVER_CALLED, UNKNOWN) else inside
    return replace(verdict, verdict=DEAD, culprits=(), waiting=waiting, reason="", cut_short=True)


def ranks_of(members: Sequence[Member]) -> tuple[int, ...]:
    """Global ranks in order."""
    return tuple(sorted({member.rank for member in members}))


def with_operation(verdict: Verdict, signature: Signature | None, order: int) -> Verdict:
    """A verdict with the operation that it is about."""
    if signature is None:
        return replace(verdict, order=order)
    return replace(
        verdict,
        function=signature.function,
        order=order,
        size_bytes=signature.size_bytes,
        datatype=signature.datatype,
    )
