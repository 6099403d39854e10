"""What GPU times of every operation cost, and what can be sampled, by release and topology.

Measured on an H200 with two ranks (docs/measurements/nccl.md): nearly all of the cost is that of
one event, KernelCh. With it NCCL polls for each operation until its kernel has ended. Between hosts
a thread of NCCL polls anyway. The numbers are the highest that were measured.
"""

from dataclasses import dataclass

from ncclscope.nccl.events import FIRST_WITH_CALLS, FIRST_WITH_STAMPS
from ncclscope.nccl.releases import Release, interface_of, text_of

_OWN_QUEUE: Release = (2, 31, 0)  # from here on KernelCh has a queue of its own
AVOID = "--gpu-timing sampled avoids it"
_AVOID_OF_UNKNOWN = f"{AVOID}, before NCCL 2.28 --gpu-timing off"


@dataclass(frozen=True, slots=True)
class Spans:
    """Which communicators of several ranks a job may have. With NCCL 2.26 and before, and before
    the job runs, nobody knows: both.
    """

    within_hosts: bool = True  # all ranks on one
    between_hosts: bool = True


def kernel_cost(release: Release | None = None, spans: Spans | None = None) -> str:
    """What KernelCh costs; of an unknown release or topology, the worst."""
    spans = spans or Spans()
    eager, graphs = ("2 times the time and 3 times the CPU time", "4 and 5 times")
    if release and release >= _OWN_QUEUE:
        eager = "1.4 times the time and 2 times the CPU time"
    elif release:
        graphs = "2.3 and 4 times"
    within = f"up to {eager} of small operations within a host, {graphs} in CUDA graphs"
    between = "up to 1.06 times the time of small operations between hosts"
    parts = (within if spans.within_hosts else "", between if spans.between_hosts else "")
    return "; ".join(filter(None, parts))


def way_out(release: Release | None = None) -> str:
    """What to set to do without KernelCh."""
    if release is None:
        return _AVOID_OF_UNKNOWN
    if (interface_of(release) or 0) >= FIRST_WITH_CALLS:
        return AVOID
    return f"--gpu-timing off avoids it; NCCL {text_of(release)} has nothing to sample"


def kernel_sentence(release: Release | None = None, spans: Spans | None = None) -> str:
    """The cost of timing every operation, and the way out."""
    what = "every operation is timed"
    if release and (interface_of(release) or 0) < FIRST_WITH_STAMPS:
        what = "every kernel is reported, without GPU times"
    of = f" with NCCL {text_of(release)}" if release else ""
    return f"{what}, which costs{of} {kernel_cost(release, spans)}. {way_out(release)}"
