"""Events and states of NCCL's profiler interface, by name; native/src/nccl_abi.h lists them.

Bits, numbers, and what each version has. The lists come by way of `_events`, which is generated.
"""

from ncclscope.nccl._events import *  # noqa: F403
from ncclscope.nccl._events import (
    EVENTS,
    FIRST_INTERFACE,
    MODE_EVENTS,
    NEWEST_INTERFACE,
    OLDEST_INTERFACE,
    STATE_NAMES,
)

NUMBER = {name: bit for bit, name in enumerate(EVENTS)}
BIT = {name: 1 << bit for name, bit in NUMBER.items()}
GPU_TIMING_EVENTS = BIT["KernelCh"] | BIT["KernelPhase"]
# What sampled GPU timing needs: launches to time, and what says which calls they carry.
_SAMPLING = ("KernelLaunch", "Group", "GroupApi", "CollApi", "P2pApi")
SAMPLING_EVENTS = sum(BIT[name] for name in _SAMPLING)
MODES = tuple(MODE_EVENTS)
INTERFACES = range(OLDEST_INTERFACE, NEWEST_INTERFACE + 1)
FIRST_WITH_KERNELS = FIRST_INTERFACE["KernelCh"]


def events_of(interface: int) -> int:
    """The events that an interface version has, as a mask."""
    return sum(BIT[name] for name, first in FIRST_INTERFACE.items() if first <= interface)


STATE = {name: number for number, name in STATE_NAMES.items()}
LAST_OLD_PROXY_OP_STATE = STATE["ProxyOpRecvDone"]  # ProxyOp's states up to NCCL 2.26
# In the order in which a step passes through them.
SEND_STEP_STATES = tuple(
    STATE[f"ProxyStep{name}"] for name in ("SendGPUWait", "SendPeerWait", "SendWait")
)
RECV_STEP_STATES = tuple(
    STATE[f"ProxyStep{name}"] for name in ("RecvWait", "RecvFlushWait", "RecvGPUWait")
)
