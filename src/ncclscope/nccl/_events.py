"""NCCL's profiler interface.

Made by tools/generate.py from native/src/nccl_abi.h and config.h: do not edit.
"""

# fmt: off
# In the order of their bits; the kind of an event's slot is 1 + its bit.
EVENTS = (
    "Group", "Coll", "P2p", "ProxyOp", "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
    "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl", "CeSync", "CeBatch", "KernelPhase",
)
# First interface version that has the event.
FIRST_INTERFACE = {
    "Group": 1, "Coll": 1, "P2p": 1, "ProxyOp": 1, "ProxyStep": 1, "ProxyCtrl": 1, "KernelCh": 3,
    "NetPlugin": 3, "GroupApi": 5, "CollApi": 5, "P2pApi": 5, "KernelLaunch": 5, "CeColl": 6,
    "CeSync": 6, "CeBatch": 6, "KernelPhase": 7,
}
OLDEST_INTERFACE = 1
NEWEST_INTERFACE = 7
FIRST_WITH_STAMPS = 4
FIRST_WITH_CALLS = 5
FIRST_WITH_TAGS = 7
# Events that each mode asks NCCL for.
MODE_EVENTS = {
    "profile": 0x7746, "trace": 0xFF4F, "full": 0xFFFF,
}
STATE_NAMES = {
    0: "ProxyOpSendPosted", 1: "ProxyOpSendRemFifoWait", 2: "ProxyOpSendTransmitted",
    3: "ProxyOpSendDone", 4: "ProxyOpRecvPosted", 5: "ProxyOpRecvReceived",
    6: "ProxyOpRecvTransmitted", 7: "ProxyOpRecvDone", 8: "ProxyStepSendGPUWait",
    9: "ProxyStepSendWait", 10: "ProxyStepRecvWait", 11: "ProxyStepRecvFlushWait",
    12: "ProxyStepRecvGPUWait", 13: "ProxyCtrlIdle", 14: "ProxyCtrlActive", 15: "ProxyCtrlSleep",
    16: "ProxyCtrlWakeup", 17: "ProxyCtrlAppend", 18: "ProxyCtrlAppendEnd",
    19: "ProxyOpInProgress", 20: "ProxyStepSendPeerWait", 21: "NetPluginUpdate",
    22: "KernelChStop", 23: "GroupStartApiStop", 24: "GroupEndApiStart", 25: "CeCollStart",
    26: "CeCollComplete", 27: "CeSyncStart", 28: "CeSyncComplete", 29: "CeBatchStart",
    30: "CeBatchComplete", 31: "KernelPhaseStop",
}
NET_IB_V1 = 0x10001
NET_SOCKET_V1 = 0x20001
