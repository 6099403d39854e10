"""What rules look at: a run, what several analyses need of it, and how its ranks are named."""

import re
import shlex
from collections import Counter
from functools import cached_property

import numpy as np

from ncclscope.analysis.change import Slowdown, slowdowns
from ncclscope.analysis.measures import extent
from ncclscope.analysis.own_time import OwnTimes, own_times, unknown_own_times
from ncclscope.analysis.run import Run
from ncclscope.analysis.synchronized_instances import SynchronizedInstances, synchronized_instances
from ncclscope.analysis.waiting.heavy_stages import HeavyStage, heavy_stage
from ncclscope.analysis.waiting.kernels import is_sparse
from ncclscope.analysis.waiting.late_hosts import HostInTurn, host_in_turn
from ncclscope.analysis.waiting.only_roots import OnlyRoot, only_root
from ncclscope.analysis.waiting.origins import (
    Waiting,
    WaitingAccount,
    account_of,
    waiting_of,
)
from ncclscope.analysis.waiting.pauses import Pauses, Standstills, pauses_of, standstills_of
from ncclscope.analysis.waiting.pauses_in_turn import PausesInTurn, pauses_in_turn
from ncclscope.analysis.waiting.rank_sums import share_of_wall_time
from ncclscope.analysis.waiting.root_causes import RootCauses, root_causes
from ncclscope.analysis.waiting.sampled_delays import SampledDelays, sampled_delays
from ncclscope.analysis.waiting.unequal_data import MoreData, ranks_with_more_data
from ncclscope.analysis.waiting.what_if import WhatIf
from ncclscope.arrays.types import Ints
from ncclscope.errors import FormatError
from ncclscope.ingest.capture_topology import topology_of
from ncclscope.model.model import Model
from ncclscope.model.system_samples import SystemSamples, system_of
from ncclscope.model.topology import Topology
from ncclscope.threads import Threads

_LOOKED_FOR_AT_ONCE = 32  # late ranks
_SLOWER = 1.2  # times as long on the wire: less is not looked for
_BUS_ID = re.compile(r"[0-9A-Fa-f]+:([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)")


class RuleContext:
    """A capture as rules get it. What is costly is made when a rule first asks for it. Files next
    to the model are read here, not in rules.

    model          the capture
    run            its last attempt: masks of operations, ranks, hosts, the span
    path           the capture's path, quoted for a shell
    own_times      by operation the rank's time since operations before it: own_time.py
    synchronized   collectives in which everybody waits for the last: synchronized.py
    slowdowns      times in which communicators were slower: change.py
    waiting        dependencies between kernels of all ranks: analysis/waiting
    account        where waiting began
    what_if        predictions about the run
    root_causes    ranks and communicators that make the run longer
    is_sparse      whether few operations are timed, chosen as a sample
    sampled_delays ranks that are late by a sample of operations
    pauses         ranks whose single pauses make the run longer
    standstills    pauses of all ranks at the same time
    heavy_stage    ranks of a pipeline stage that all compute longer than others
    only_root      a root that all others wait for by design
    system         samples of GPUs, network and hosts
    topology       what NCCL's log says about links
    where(), at(), during()  how sentences name a rank's place, a moment, and a stretch of time
    """

    def __init__(self, model: Model, is_replayed: bool = True) -> None:
        """`is_replayed`: whether waiting is followed; a run may be too long for that."""
        self.model = model
        self._is_replayed = is_replayed
        self.run = Run(model)
        self.path = shlex.quote(str(model.path))
        self._waits_because_of: dict[int, Ints] = {}

    @cached_property
    def own_times(self) -> OwnTimes:
        """By operation the rank's own time before it; unknown where waiting is not followed."""
        return own_times(self.run) if self._is_replayed else unknown_own_times(self.run)

    @cached_property
    def synchronized(self) -> SynchronizedInstances:
        """Collectives in which everybody waits for the last."""
        return synchronized_instances(self.run, self.own_times)

    @cached_property
    def slowdowns(self) -> tuple[Slowdown, ...]:
        """Communicators that became slower, and when."""
        return slowdowns(self.run, self.synchronized, _SLOWER, self.waiting)

    @cached_property
    def waiting(self) -> Waiting | None:
        """Dependencies between kernels; None where no waiting can be seen, or is followed."""
        return waiting_of(self.run) if self._is_replayed else None

    @cached_property
    def account(self) -> WaitingAccount | None:
        """Where waiting began."""
        if self.waiting is None:
            return None
        with Threads(1) as threads:  # a replay is made ready meanwhile: most rules need both
            threads.submit(lambda: self.what_if)
            return account_of(self.waiting)

    @cached_property
    def what_if(self) -> WhatIf | None:
        """Predictions about the run."""
        return None if self.waiting is None else WhatIf(self.waiting)

    @cached_property
    def root_causes(self) -> RootCauses | None:
        """Ranks and communicators that make the run longer."""
        if self.waiting is None or self.what_if is None or self.is_sparse:
            return None
        return root_causes(self.waiting, self.what_if)

    @cached_property
    def more_data(self) -> dict[int, MoreData]:
        """Late ranks that have more to do, because they receive more."""
        if self.waiting is None or self.root_causes is None:
            return {}
        return ranks_with_more_data(self.waiting, self.root_causes.ranks)

    def waits_because_of(self, waiting: Waiting, rank: int) -> Ints:
        """By rank of `waiting` how long it waited because of this one (global): where kernels wait
        at the same time, the time once. Those of late ranks are looked for at once.
        """
        if rank not in self._waits_because_of:
            late = [] if self.root_causes is None else [own.rank for own in self.root_causes.ranks]
            ranks = [rank, *(other for other in late[:_LOOKED_FOR_AT_ONCE] if other != rank)]
            share = share_of_wall_time(waiting)
            waits = waiting.waits_because_of(ranks)
            self._waits_because_of |= {
                r: (own * share).astype(np.int64) for r, own in waits.items()
            }
        return self._waits_because_of[rank]

    @cached_property
    def is_sparse(self) -> bool:
        """Whether most operations were left out of the sample of those that are timed. Between the
        others nothing shows what ranks did: neither pauses, nor the critical path, nor origins.
        """
        waiting = self.waiting
        return waiting is not None and is_sparse(self.model, waiting.kernels.timed_share)

    @cached_property
    def sampled_delays(self) -> tuple[SampledDelays, ...]:
        """Ranks that are late by a sample of operations."""
        return () if self.waiting is None else sampled_delays(self.waiting)

    @cached_property
    def pauses(self) -> tuple[Pauses, ...]:
        """Ranks whose single pauses make the run longer."""
        if self.waiting is None or self.what_if is None or self.is_sparse:
            return ()
        causes = self.root_causes
        late = {delays.rank: delays.pauses for delays in causes.ranks} if causes is not None else {}
        return pauses_of(self.waiting, self.what_if, late)

    @cached_property
    def host_in_turn(self) -> HostInTurn | None:
        """The host whose ranks are late in turn; None where another reason is known."""
        waiting, what_if, account = self.waiting, self.what_if, self.account
        if waiting is None or what_if is None or what_if.why_not or account is None:
            return None
        if self.more_data or self.heavy_stage is not None or self.only_root is not None:
            return None
        return host_in_turn(waiting, what_if, account, self.root_causes, self.pauses)

    @cached_property
    def pauses_in_turn(self) -> PausesInTurn | None:
        """Pauses of many ranks, each at another time, where no single rank's are a problem."""
        if self.waiting is None or self.what_if is None or self.what_if.why_not or self.pauses:
            return None
        if self.root_causes is not None or self.host_in_turn is not None:
            return None
        return pauses_in_turn(self.waiting, self.what_if)

    @cached_property
    def standstills(self) -> Standstills | None:
        """Pauses of all ranks at the same time. Where records were lost, ranks that waited for a
        late one look as if they had paused.
        """
        if self.waiting is None or self.model.completeness.dropped or self.is_sparse:
            return None
        return standstills_of(self.waiting)

    @cached_property
    def heavy_stage(self) -> HeavyStage | None:
        """The stage of a pipeline that computes longer than the others."""
        if self.waiting is None or self.what_if is None:
            return None
        return heavy_stage(self.waiting, self.what_if)

    @cached_property
    def only_root(self) -> OnlyRoot | None:
        """A root with a role that no other rank has."""
        return None if self.waiting is None or self.is_sparse else only_root(self.waiting)

    @cached_property
    def system(self) -> SystemSamples:
        """Samples of the machines during the run."""
        return system_of(self.model)

    @cached_property
    def topology(self) -> Topology | None:
        """NCCL's log; None where there is none, or where it cannot be read, which `report` says."""
        try:
            return topology_of(self.model.path) or None
        except FormatError:
            return None

    @cached_property
    def _ranks_in(self) -> Counter[int]:
        """How many ranks each process has."""
        return Counter(self.run.process_of.values())

    def where(self, rank: int) -> str:
        """Where a rank is: " (node7 GPU 1b:00.0; pid 811)"; "" where it is not known."""
        if rank not in self.run.process_of:
            return ""
        process = self.run.process_of[rank]
        row = self.model.processes[process]
        # Of a process with several ranks only the first one's GPU is known here.
        bus = _BUS_ID.fullmatch(row.gpu) if self._ranks_in[process] == 1 else None
        place = f"{row.host} GPU {bus[1].lower()}" if bus else row.host
        return f" ({place}; pid {row.pid})" if row.pid > 0 else f" ({place})"

    @cached_property
    def _began_ns(self) -> int:
        """When the capture began, whichever attempt that was: `--since` counts from there."""
        if self.model.began_ns is not None:
            return self.model.began_ns
        return (extent(self.run.operations) or (0, 0))[0]

    def at(self, time_ns: int) -> str:
        """A time as `--since` takes it: seconds from the start of the capture."""
        return f"{(time_ns - self._began_ns) / 1e9:.3f}"

    def during(self, began_ns: int, ended_ns: int | None) -> str:
        """A stretch of the run in words: "from 0.397 s on"; `ended_ns`: None where it lasted."""
        began = self.at(began_ns)
        return (
            f"from {began} s on" if ended_ns is None else f"from {began} to {self.at(ended_ns)} s"
        )
