"""Which way a call takes through the packages: from where to where it calls, and who opens files."""

import _thread
import builtins
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import ncclscope

_PACKAGE = f"{Path(ncclscope.__file__).parent}{os.sep}"
_OPENERS = (builtins.open, os.open)
_CARRIES_OUT = ("threads.py", "model/engine.py")  # they call what others hand them


@dataclass
class CallFlow:
    """What was seen: calls from package to package, and modules that opened a file."""

    calls: dict[tuple[str, str], set[str]] = field(
        default_factory=dict
    )  # names of called functions
    modules: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)


def package_of(module: str) -> str:
    """`model/align/bounds.py` is of model."""
    return module.partition("/")[0].removesuffix(".py")


def _module_of(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    if not name.startswith(_PACKAGE) or frame.f_code.co_name == "<module>":
        return None
    return name.removeprefix(_PACKAGE)


def _callers(frame: FrameType) -> Iterator[str]:
    above: FrameType | None = frame
    while above is not None:
        module = _module_of(above)
        if module and module not in _CARRIES_OUT:
            yield module
        above = above.f_back


def call_flow(function: Callable[[], object]) -> CallFlow:
    """The way of one call."""
    flow = CallFlow()

    def look(frame: FrameType, event: str, value: Any) -> None:
        if event == "c_call" and value in _OPENERS:
            flow.opened += [next(_callers(frame), "")]
        if event != "call" or (module := _module_of(frame)) is None:
            return
        flow.modules.add(module)
        caller = next(_callers(frame.f_back), None) if frame.f_back else None
        if caller and package_of(caller) != package_of(module):
            way = package_of(caller), package_of(module)
            flow.calls.setdefault(way, set()).add(frame.f_code.co_name)

    def start_and_look(work: Callable[..., object], arguments: tuple[Any, ...]) -> int:
        def look_and_work() -> None:
            sys.setprofile(look)
            work(*arguments)

        return start(look_and_work, ())

    before, start = sys.getprofile(), _thread.start_new_thread
    sys.setprofile(look)
    with mock.patch.object(_thread, "start_new_thread", start_and_look):
        try:
            function()
        finally:
            sys.setprofile(before)
    return flow
