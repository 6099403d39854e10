"""What GPU times of every operation cost, and what can be sampled, by release and topology.

Measured on an H200 with two ranks (docs/measurements/nccl.md): all of the cost is that of one
event, KernelCh. With it NCCL's proxy thread polls for each operation until its kernel has ended.
Over a network that thread runs anyway.
"""

from ncclscope.nccl.releases import Release, interface_of, text_of

_OWN_QUEUE: Release = (2, 31, 0)  # from here on KernelCh has a queue of its own: it costs less
_FIRST_WITH_LAUNCHES, _FIRST_WITH_STAMPS = 5, 4
AVOID = "--gpu-timing sampled avoids it"


def kernel_cost(release: Release | None = None, hosts: int | None = None) -> str:
    """What KernelCh costs; of an unknown release or topology, the worst."""
    if hosts is not None and hosts > 1:
        return "nothing measurable over a network"
    slower, cpu = ("1.4", "2") if release and release >= _OWN_QUEUE else ("1.9", "3")
    of = f" with NCCL {text_of(release)}" if release else ""
    elsewhere = "" if hosts == 1 else "; nothing measurable over a network"
    return (
        f"up to {slower} times the time and {cpu} times the CPU time of small operations on one "
        f"host{of}, 2 times the time of CUDA graphs{elsewhere}"
    )


def kernel_sentence(release: Release | None = None, hosts: int | None = None) -> str:
    """The cost of timing every operation, and the way out if there is one to take."""
    cost = f"every operation is timed, which costs {kernel_cost(release, hosts)}"
    return cost if hosts is not None and hosts > 1 else f"{cost}. {AVOID}"


def sampling_sentence(release: Release) -> str:
    """How GPU times are sampled with a release, or why they cannot be."""
    interface = interface_of(release) or 0
    if interface >= _FIRST_WITH_LAUNCHES:
        return "profile mode samples GPU times by CUDA events, at next to no cost"
    if interface >= _FIRST_WITH_STAMPS:
        return "profile mode times kernels in bursts: this release reports no launches"
    return "GPU times cannot be sampled: this release reports neither launches nor GPU times"
