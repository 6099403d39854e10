"""Kinds of rows: what the bars of a row stand for. The page's list of kinds is made of this."""

Hsl = tuple[int, int, int]  # hue, saturation, lightness

# Operations, and what the model and the machine add to NCCL's callbacks.
OPERATION, PART, CHANNEL = "operation", "part", "channel"
COMMUNICATOR, DROP, PREVIEW, COUNTER = "Comm", "Drop", "preview", "counter"
STEP, PHASE, RANGE = "step", "phase", "range"  # of the training loop, where there is a context
TRAINING_KINDS = (STEP, PHASE, RANGE)
PATH = "critical path"  # of the run, through all ranks
BANDWIDTH = "bandwidth"  # a line that the page draws above a row of operations
# Callbacks by NCCL's names, from the user's call down.
CALL_KINDS = ("GroupApi", "CollApi", "P2pApi", "KernelLaunch", "Group", "Coll", "P2p")
THREAD_KINDS = (*CALL_KINDS, "CeColl", "CeSync", "CeBatch", "ProxyCtrl")
CHANNEL_KINDS = ("KernelCh", "KernelPhase")
PROXY_KINDS = ("ProxyOp", "ProxyStep", "NetPlugin")
CALLBACK_KINDS = (*THREAD_KINDS, *CHANNEL_KINDS, *PROXY_KINDS)
CALLBACKS_WITH_FUNCTION = ("CollApi", "P2pApi", "Coll", "P2p", "CeColl")
CALLBACK_COLOURS: dict[str, Hsl] = {
    "Group": (214, 16, 62),
    "ProxyOp": (28, 40, 60),
    "ProxyCtrl": (352, 34, 62),
    "KernelCh": (200, 30, 58),
    "NetPlugin": (48, 30, 56),
    "GroupApi": (130, 28, 58),
    "KernelLaunch": (46, 66, 58),
    "CeSync": (250, 24, 62),
    "CeBatch": (262, 24, 58),
    "KernelPhase": (190, 30, 52),
}  # others have a function's colour, or are grey
# Rows that a filter of functions applies to.
WITH_FUNCTION = (OPERATION, PART, *CALLBACKS_WITH_FUNCTION)

# The order of a lane's tracks; other kinds come last.
_LANE_ORDER = (PREVIEW, DROP, *TRAINING_KINDS, OPERATION, PART, CHANNEL, *CALLBACK_KINDS)
LANE_ORDER = {kind: place for place, kind in enumerate(_LANE_ORDER)}
# Titles of tracks; other kinds are called by their name.
TITLES = {
    OPERATION: "operations",
    PART: "its sends and receives",
    CHANNEL: "kernel, by GPU stamps",
    PREVIEW: "sampled",
    STEP: "steps",
    PHASE: "phases",
    RANGE: "ranges",
    DROP: "events dropped",
    "KernelCh": "KernelCh, by host times",
    COMMUNICATOR: "init and finalize",
}
# Kinds in the order of the page's menu, with the text of their button.
MENU = {
    OPERATION: "operations",
    PART: "parts",
    BANDWIDTH: BANDWIDTH,
    COMMUNICATOR: "init/finalize",
    **{kind: kind for kind in THREAD_KINDS},
    CHANNEL: "GPU channels",
    **{kind: kind for kind in (*CHANNEL_KINDS, *PROXY_KINDS)},
    DROP: "dropped",
    PREVIEW: "sampled",
    COUNTER: "machine",
    STEP: "steps",
    PHASE: "phases",
    RANGE: "ranges",
    PATH: PATH,
}
# Kinds in the order in which they are left out of the single file of a large capture.
LEFT_OUT_FIRST = (
    COUNTER, "NetPlugin", "ProxyStep", "ProxyCtrl", "KernelPhase", "KernelCh", CHANNEL, "ProxyOp",
    "Group", "KernelLaunch", "GroupApi", PART, "CollApi", "P2pApi", "Coll", "P2p", "CeSync",
    "CeBatch", "CeColl", PATH,  # a path with gaps would be wrong
)  # fmt: skip
