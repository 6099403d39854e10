"""Files that the plugin has a job's Python run, as modules."""

import importlib.util
from typing import Any

from ncclscope.native import plugin_path


def load_attached(name: str) -> Any:
    """A file of native/attach, as a module."""
    path = plugin_path().with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"of_the_plugin_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
