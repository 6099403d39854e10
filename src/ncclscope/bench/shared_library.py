"""Loads a shared library and finds its functions, with error messages for users."""

import ctypes
from ctypes import CDLL
from typing import Any

from ncclscope.errors import NcclscopeError


def load(path: str, what: str, option: str) -> CDLL:
    """A library, its symbols visible to libraries that are loaded later."""
    try:
        return CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        message = f"cannot load {what}: {error}"
        raise NcclscopeError(
            message, f"Name it with {option} PATH; without a GPU use --simulate"
        ) from None


def find_function(library: CDLL, path: str, *names: str) -> Any:
    """The first of these functions that the library has."""
    for name in names:
        function = getattr(library, name, None)
        if function is not None:
            return function
    hint = "Use a newer release, or leave out what needs it"
    raise NcclscopeError(f"cannot use {path}: it has no function {names[-1]}", hint)
