"""Two lines for a training script: steps, modules, ranges and metrics of PyTorch jobs.

    import ncclscope.torch

    ncclscope.torch.watch(model)
    for batch in ncclscope.torch.steps(loader):
        ...

`ncclscope run` sees steps, phases and FSDP's modules without them. Everything here does nothing
where the job is not recorded, and needs no package besides PyTorch.
"""

import ctypes
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

__all__ = ["is_recorded", "metric", "range", "step", "steps", "watch"]

_MODULE = "_ncclscope_recorder"
_API = 5  # who writes a range, as in the capture format
_STEP, _TOKENS, _FLOPS, _METRIC = (
    "ncclscope.step",
    "ncclscope.tokens",
    "ncclscope.flops",
    "ncclscope.metric ",
)
_T = TypeVar("_T")
_steps = 0


def _recorder() -> ModuleType | None:
    """The recorder's functions; None where nothing records this process."""
    module = sys.modules.get(_MODULE)
    if module is None:
        path = os.environ.get("NCCL_PROFILER_PLUGIN", "")
        if os.path.isfile(path):
            try:
                ctypes.PyDLL(path).ncclscope_python_module()
            except (OSError, AttributeError):  # another profiler's
                return None
            module = sys.modules.get(_MODULE)
    return module


def is_recorded() -> bool:
    """Whether what is said here gets into a capture."""
    return _recorder() is not None


def _mark(text: str, payload: int | float | None = None) -> None:
    recorder = _recorder()
    if recorder is not None:
        recorder.mark(text, _API, payload)


def step(number: int | None = None, tokens: int | None = None, flops: int | None = None) -> None:
    """Says that a training step has ended.

    `number`: of the step, else they are counted from 0. `tokens` and `flops`: what this process
    has done in it; reports have tokens/s and an estimate of the MFU then.
    """
    global _steps
    if tokens is not None:
        _mark(_TOKENS, int(tokens))
    if flops is not None:
        _mark(_FLOPS, int(flops))
    own = _steps if number is None else int(number)
    _steps = own + 1
    _mark(_STEP, own)
    kernels_wanted = getattr(_recorder(), "on_step", None)  # while `ctl --kernels` waits for steps
    if kernels_wanted is not None:
        kernels_wanted(own)


def steps(batches: Iterable[_T], tokens: Callable[[_T], int] | int | None = None) -> Iterator[_T]:
    """The batches one by one; each pass of the loop is a step. `tokens`: of a batch, or a function
    that counts them.
    """
    for batch in batches:
        yield batch
        step(tokens=tokens(batch) if callable(tokens) else tokens)


@contextmanager
def range(name: str) -> Iterator[None]:
    """A range around a part of the program: `with ncclscope.torch.range("loss"): …`"""
    recorder = _recorder()
    if recorder is None:
        yield
        return
    recorder.range_push(str(name), _API)
    try:
        yield
    finally:
        recorder.range_pop()


def metric(name: str, value: float) -> None:
    """A number of the program at this moment, as a loss."""
    _mark(_METRIC + str(name), float(value))


def watch(model: Any, depth: str = "blocks") -> Any:
    """Has the blocks of a model name the calls in them, forward and backward; returns the model.

    `depth="all"` takes all modules. Call it before `torch.compile`; inside compiled code hooks do
    not run.
    """
    recorder, torch = _recorder(), sys.modules.get("torch")
    if recorder is not None and torch is not None:
        attached: Any = importlib.import_module("ncclscope.native.ncclscope_attach")
        try:
            attached.watch(recorder, torch, model, depth)
            total = sum(parameter.numel() for parameter in model.parameters())
            attached.write(recorder, what="facts", parameters=total)
        except Exception as error:  # the job goes on, whatever PyTorch has changed
            why = f"watch: {type(error).__name__}: {error}"
            attached.write(recorder, what="failure", why=why[:200])
    return model
