"""FSDP2 of the installed PyTorch. In: nothing. Out: its function `fully_shard`."""

import importlib
from collections.abc import Callable
from typing import Any

from ncclscope.errors import NcclscopeError

# PyTorch 2.6 and later; 2.4 and 2.5.
_MODULES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")


def find_fully_shard() -> Callable[..., Any]:
    """The function that shards a module's parameters; raises where PyTorch has none."""
    for name in _MODULES:
        try:
            found: Callable[..., Any] = importlib.import_module(name).fully_shard
        except (ImportError, AttributeError):
            continue
        return found
    message = "cannot train gpt: this PyTorch has no FSDP2 (fully_shard)"
    raise NcclscopeError(message, "Install PyTorch 2.4 or later, or train densenet121")
