"""Tables that are made when asked for, and not kept: every column with its type, unit and meaning.

schema.py says how they are written and has the tables that a model keeps.
"""

from ncclscope.model.schema import table_columns

CHANNELS = table_columns(
    ("process", "i4", "row of `processes`"),
    ("operation", "i8", "row of `operations`"),
    ("channel", "i2", "NCCL's channel"),
    ("start_ns", "i8", "first stamp, mapped to the one clock"),
    ("end_ns", "i8", "last stamp, mapped to the one clock"),
    ("seen_start_ns", "i8", "the host noticed the start"),
    ("seen_end_ns", "i8", "the host noticed the end"),
    ("stamp", "word", "valid, repaired, recovered, rejected, missing"),
)

LAUNCHES = table_columns(
    ("process", "i4", "row of `processes`"),
    ("communicator", "i4", "row of `communicators`"),
    ("thread", "i4", "id of the thread that launched"),
    ("stream", "i8", "CUDA stream"),
    ("start_ns", "i8", "the launch began"),
    ("end_ns", "i8", "the launch returned"),
    ("operations", "i4", "operations that its kernel carried out"),
    ("group_call", "i8", "the group call it was part of, by process"),
    ("event", "i8", "its event, numbered like those of `operations`"),
)

PROXY_OPS = table_columns(
    ("process", "i4", "row of `processes`: the one whose proxy thread did it"),
    ("operation", "i8", "row of `operations`; NULL for those of other processes (PXN)"),
    ("communicator", "i4", "row of `communicators`; NULL for those of other processes"),
    ("rank", "i4", "rank in the communicator"),
    ("peer", "i4", "the other rank"),
    ("form", "word", "send or recv"),
    ("channel", "i2", "NCCL's channel"),
    ("steps", "i4", "steps it consists of"),
    ("chunk_bytes", "i4", "bytes of a step, at most"),
    ("pid", "i4", "process that asked for it"),
    ("thread", "i4", "id of the proxy thread"),
    ("start_ns", "i8", "NCCL queued it"),
    ("in_progress_ns", "i8", "the proxy thread began"),
    ("end_ns", "i8", "it was done"),
    ("event", "i8", "its event, numbered like those of `operations`"),
)

PROXY_STEPS = table_columns(
    ("process", "i4", "row of `processes`"),
    ("proxy_op", "i8", "`event` of its proxy op in the same process"),
    ("operation", "i8", "row of `operations`; NULL for those of other processes (PXN)"),
    ("form", "word", "send or recv"),
    ("channel", "i2", "NCCL's channel"),
    ("peer", "i4", "the other rank"),
    ("step", "i4", "number of the step"),
    ("size_bytes", "i8", "bytes it moved; NULL before interface v4"),
    ("start_ns", "i8", "the step began"),
    ("gpu_since_ns", "i8", "waits for the GPU: for data to send, or for room to put data"),
    ("peer_since_ns", "i8", "a send waits for the receiver's room"),
    ("network_since_ns", "i8", "waits for the network"),
    ("flush_since_ns", "i8", "a receive waits for data to reach the GPU's memory"),
    ("end_ns", "i8", "the step ended"),
)

RANGES = table_columns(
    ("process", "i4", "row of `processes`"),
    ("thread", "i4", "id of the thread that wrote it"),
    ("source", "text", "nvtx, record_function, engine, module or api"),
    ("domain", "text", "NVTX domain"),
    ("category", "text", "NVTX category: its name, else its number"),
    ("text", "text", "what the program called it"),
    ("depth", "i4", "ranges around it"),
    ("start_ns", "i8", "it began"),
    ("end_ns", "i8", "it ended; NULL: it was open at the end"),
    ("is_mark", "i1", "1: a moment, not a stretch of time"),
    ("payload", "i8", "the number that came with it"),
    (
        "fields",
        "text",
        "the payload by its NVTX schema, as JSON: NCCL's own say communicator, ranks, color …",
    ),
    ("event", "i8", "its event, numbered like those of `operations`"),
)

# From what samplers wrote while the job ran.
SYSTEM = table_columns(
    ("time_ns", "i8", "when it was sampled"),
    ("node", "i4", "row of `nodes`"),
    ("host", "text", "name of the node's host"),
    ("kind", "text", "gpu, nic, port (of an InfiniBand card) or host"),
    ("device", "text", "number of the GPU on its host, name of the interface or port"),
    ("counter", "text", "which; format.md has all of them"),
    ("value", "i8", "the number, in the unit that the counter's name says"),
    ("per_second", "i8", "of totals what they grew by since the sample before; NULL after a reset"),
)

# Tables that are made from the events of the capture.
DETAILS = {
    "channels": CHANNELS,
    "launches": LAUNCHES,
    "proxy_ops": PROXY_OPS,
    "proxy_steps": PROXY_STEPS,
    "ranges": RANGES,
}
