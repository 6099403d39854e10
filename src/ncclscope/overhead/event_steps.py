"""The events of a mask in steps: what NCCL takes for each is measured by asking for one step more.

KernelCh is the last step. So the step before it has the events that `--gpu-timing sampled` and
`off` ask for, and the last step alone is what GPU times of every operation cost.
"""

from dataclasses import dataclass

from ncclscope.nccl.events import BIT, GPU_TIMING_EVENTS


@dataclass(frozen=True, slots=True)
class EventStep:
    """Events that are added to those of the steps before it."""

    name: str
    text: str  # in the table
    events: int  # a mask


def _mask(*names: str) -> int:
    return sum(BIT[name] for name in names)


STEPS = (
    EventStep(
        "calls", "API calls, launches", _mask("GroupApi", "CollApi", "P2pApi", "KernelLaunch")
    ),
    EventStep(
        "operations",
        "groups, operations",
        _mask("Group", "Coll", "P2p", "CeColl", "CeSync", "CeBatch"),
    ),
    EventStep("proxy", "proxy, network", _mask("ProxyOp", "ProxyStep", "ProxyCtrl", "NetPlugin")),
    EventStep("kernels", "KernelCh (GPU times)", GPU_TIMING_EVENTS),
)
KERNELS = STEPS[-1].name
PROXY = STEPS[-2].name
_COUNTED = _mask("Coll", "P2p")  # what the empty plugin counts with every interface version


def steps_of(mask: int) -> list[EventStep]:
    """The steps that have events in a mask."""
    return [step for step in STEPS if step.events & mask]


def partial_masks(mask: int, counted: bool) -> dict[str, int]:
    """The masks after each step but the last, by the step's name: after the last it is `mask`.

    With `counted`, only those whose events can be counted as calls.
    0x46 -> {"operations": 0x6}, then KernelCh makes it 0x46
    """
    masks, so_far = {}, 0
    for step in steps_of(mask)[:-1]:
        so_far |= step.events & mask
        if so_far & _COUNTED or not counted:
            masks[step.name] = so_far
    return masks
