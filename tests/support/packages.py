"""Marks of tests that need packages which may be missing.

Nothing is imported to find out: every test process collects all tests, and importing PyTorch alone
takes seconds of CPU time.
"""

from importlib.util import find_spec

import pytest


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark that skips tests where one of these packages is not installed."""
    missing = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
