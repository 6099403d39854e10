"""What the text of a range means: phase, module, and whether it marks training steps.

PyTorch names its own parts (`Optimizer.step#AdamW.step`, `FSDP::all_gather (layers.1)`); the
attached file and `ncclscope.torch` name theirs; NVTX texts are the user's. The texts are the only
interface: nothing here depends on a release of PyTorch.
"""

import re
from dataclasses import dataclass

from ncclscope.capture import layout
from ncclscope.model.schema import BACKWARD, CHECKPOINT, DATA, EVALUATION, FORWARD, OPTIMIZER

# Who wrote a range, by its number in the format.
SOURCE_NAMES = {
    layout.RANGE_NVTX: "nvtx",
    layout.RANGE_RECORD_FUNCTION: "record_function",
    layout.RANGE_ENGINE: "engine",
    layout.RANGE_MODULE: "module",
    layout.RANGE_API: "api",
}
# Texts that the attached file and `ncclscope.torch` write.
BACKWARD_TEXT = "autograd.backward"
STEP_TEXT = "ncclscope.step"
TOKENS_TEXT, FLOPS_TEXT = "ncclscope.tokens", "ncclscope.flops"

# What a range says about steps.
OPTIMIZER_STEP, ROOT_CALL, STEP_MARK = "optimizer", "root call", "mark"

_FSDP = re.compile(r"FSDP::(\w+)(?: \((.*)\)| for (.*))?$")
_FSDP_PHASES = {
    "root_pre_forward": FORWARD,
    "pre_forward": FORWARD,
    "post_forward": FORWARD,
    "cast_forward_inputs": FORWARD,
    "cast_forward_outputs": FORWARD,
    "forward_prefetch": FORWARD,
    "pre_backward": BACKWARD,
    "backward_prefetch": BACKWARD,
    "post_backward_accumulate": BACKWARD,
    "post_backward_reshard": BACKWARD,
    "post_backward_reduce": BACKWARD,
    "post_backward_rs_wait": BACKWARD,
    "root_post_backward_callback": BACKWARD,
}
# What FSDP does for one of its modules. It names the module behind these, except the outermost one.
_FSDP_OF_MODULE = {
    "all_gather", "all_gather_copy_out", "pre_forward", "post_forward", "pre_backward",
    "post_backward_accumulate", "post_backward_reshard", "post_backward_reduce",
    "post_backward_rs_wait",
}  # fmt: skip
ROOT_MODULE = "(root)"
# Stages of PyTorch's pipelines, as the attached file names what they do.
_PIPELINE = re.compile(r"pipeline\.(forward|backward)(\.\w+)? (stage \d+) micro-batch \d+")
# Parts of other texts, in lower case; the first that matches counts.
_PARTS = (
    (re.compile(r"^enumerate\(dataloader\)|dataloader|data_load|load_batch|get_batch"), DATA),
    (re.compile(r"^optimizer\.(step|zero_grad)#|optimizer"), OPTIMIZER),
    (re.compile(r"(save|load|write).{0,12}checkpoint|checkpoint.{0,12}(save|load|write)"),
     CHECKPOINT),
    (re.compile(r"\b(eval|evaluate|evaluation|validate|validation)\b|evaluation"), EVALUATION),
    (re.compile(r"backward|_post_backward|\bbwd\b"), BACKWARD),
    (re.compile(r"forward|\bfwd\b"), FORWARD),
)  # fmt: skip
_OPTIMIZER = re.compile(r"Optimizer\.step#|DeepSpeedEngine\.(?:_take_model_)?step$")
_ROOTS = re.compile(
    r"DistributedDataParallel\.forward$|FSDP::root_pre_forward$|"
    r"FullyShardedDataParallel\._root_pre_forward$|DeepSpeedEngine\.forward$"
)
_NUMBERED = re.compile(r"(\D*?)(\d{1,9})(\D*)")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one text says; "" where it says nothing."""

    phase: str = ""
    module: str = ""
    prefetch: bool = False
    step: str = ""
    of_fsdp_module: bool = False  # FSDP's work for one module, named or not
    is_certain: bool = False  # the phase holds, whatever the ranges around it say


def meaning_of(text: str, source: int) -> Meaning:
    """The meaning of a range by its text and by who wrote it.

    >>> prefetch = meaning_of("FSDP::backward_prefetch for layers.1", layout.RANGE_RECORD_FUNCTION)
    >>> prefetch.phase, prefetch.module, prefetch.prefetch
    ('backward', 'layers.1', True)
    >>> step = meaning_of("Optimizer.step#AdamW.step", layout.RANGE_RECORD_FUNCTION)
    >>> step.phase, step.step
    ('optimizer', 'optimizer')
    """
    if source == layout.RANGE_ENGINE:
        return Meaning(phase=BACKWARD)
    if source == layout.RANGE_MODULE:
        return Meaning(module=text)
    if source == layout.RANGE_API and text == STEP_TEXT:
        return Meaning(step=STEP_MARK)
    fsdp = _FSDP.match(text)
    if fsdp:
        name, inside, target = fsdp.groups()
        step = ROOT_CALL if _ROOTS.match(text) else ""
        phase, module = _FSDP_PHASES.get(name, ""), inside or target or ""
        return Meaning(phase, module, name.endswith("_prefetch"), step, name in _FSDP_OF_MODULE)
    pipeline = _PIPELINE.fullmatch(text)
    if pipeline:
        # Calls inside a stage's modules are of those; the stage itself sends and receives.
        module = pipeline[3] if pipeline[2] in (".send", ".receive") else ""
        return Meaning(phase=pipeline[1], module=module, is_certain=True)
    step = OPTIMIZER_STEP if _OPTIMIZER.match(text) else ROOT_CALL if _ROOTS.match(text) else ""
    small = text.lower()
    phase = next((phase for pattern, phase in _PARTS if pattern.search(small)), "")
    return Meaning(phase=phase, step=step)


def number_in(text: str) -> tuple[str, int] | None:
    """The text around the one number in it, and the number; None without or with several.

    >>> number_in("iteration 12"), number_in("2 of 3"), number_in("warm up")
    (('iteration #', 12), None, None)
    """
    match = _NUMBERED.fullmatch(text)
    return (f"{match[1]}#{match[3]}", int(match[2])) if match else None
