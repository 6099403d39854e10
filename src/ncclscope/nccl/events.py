"""Events and states of NCCL's profiler interface: bits, numbers and what each interface version has.

The lists repeat native/src/nccl_abi.h; a test holds them against it.
"""

# In the order of their bits; the kind of an event's slot is 1 + its bit.
EVENTS = (
    "Group", "Coll", "P2p", "ProxyOp", "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
    "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl", "CeSync", "CeBatch", "KernelPhase",
)  # fmt: skip
BIT = {name: 1 << bit for bit, name in enumerate(EVENTS)}
NUMBER = {name: bit for bit, name in enumerate(EVENTS)}
GPU_TIMING_EVENTS = BIT["KernelCh"] | BIT["KernelPhase"]

# Events that each mode asks NCCL for.
MODE_EVENTS = {"profile": 0x7746, "trace": 0xFF4F, "full": 0xFFFF}
MODES = tuple(MODE_EVENTS)

OLDEST_INTERFACE, NEWEST_INTERFACE = 1, 7
INTERFACES = range(OLDEST_INTERFACE, NEWEST_INTERFACE + 1)
# First interface version that …
FIRST_WITH_KERNELS = 3  # reports kernels at all
FIRST_WITH_STAMPS = 4  # gives GPU times of kernels, sizes of proxy steps, numbers of channels
FIRST_WITH_CALLS = 5  # reports API calls
FIRST_WITH_TAGS = 7  # tells the user's tag and the kernel's variant

STATE_NAMES = {
    0: "ProxyOpSendPosted",
    1: "ProxyOpSendRemFifoWait",
    2: "ProxyOpSendTransmitted",
    3: "ProxyOpSendDone",
    4: "ProxyOpRecvPosted",
    5: "ProxyOpRecvReceived",
    6: "ProxyOpRecvTransmitted",
    7: "ProxyOpRecvDone",
    8: "ProxyStepSendGPUWait",
    9: "ProxyStepSendWait",
    10: "ProxyStepRecvWait",
    11: "ProxyStepRecvFlushWait",
    12: "ProxyStepRecvGPUWait",
    13: "ProxyCtrlIdle",
    14: "ProxyCtrlActive",
    15: "ProxyCtrlSleep",
    16: "ProxyCtrlWakeup",
    17: "ProxyCtrlAppend",
    18: "ProxyCtrlAppendEnd",
    19: "ProxyOpInProgress",
    20: "ProxyStepSendPeerWait",
    21: "NetPluginUpdate",
    22: "KernelChStop",
    23: "GroupStartApiStop",
    24: "GroupEndApiStart",
    25: "CeCollStart",
    26: "CeCollComplete",
    27: "CeSyncStart",
    28: "CeSyncComplete",
    29: "CeBatchStart",
    30: "CeBatchComplete",
    31: "KernelPhaseStop",
}
STATE = {name: number for number, name in STATE_NAMES.items()}
LAST_OLD_PROXY_OP_STATE = STATE["ProxyOpRecvDone"]  # ProxyOp's states up to NCCL 2.26
# In the order in which a step passes through them.
SEND_STEP_STATES = tuple(
    STATE[f"ProxyStep{name}"] for name in ("SendGPUWait", "SendPeerWait", "SendWait")
)
RECV_STEP_STATES = tuple(
    STATE[f"ProxyStep{name}"] for name in ("RecvWait", "RecvFlushWait", "RecvGPUWait")
)
