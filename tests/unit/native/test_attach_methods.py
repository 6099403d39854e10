"""Methods of PyTorch's that the attached file extends, with a stand-in for PyTorch's file."""

import importlib.util
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.attached_files import load_attached

attached = load_attached("ncclscope_attach")

_FILE = '''
import functools


def decorated(method):
    @functools.wraps(method)
    def around(self):
        return method(self)

    return around


class Range:
    name = "a range"

    def __enter__(self: "NotImported") -> "NotImported":
        """Begins."""
        said.append("enters")
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        if exc_type is None:
            return None
        said.append("fails")
        raise ValueError("PyTorch's own")

    @decorated
    def hidden(self):
        return self

    def with_default(self, value=[]):
        return value

    def with_super(self):
        return super().__repr__()
'''


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "ranges_of_pytorch.py"
    path.write_text(_FILE)
    spec = importlib.util.spec_from_file_location("ranges_of_pytorch", path)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    loaded.__dict__["said"] = []
    return loaded


def _extended(module: Any, name: str) -> Any:
    return attached._extended(module, vars(module.Range)[name], "said.append(self.name)")


def test_an_extended_method_says_something_first_and_does_the_same(module: Any) -> None:
    enter, leave = _extended(module, "__enter__"), _extended(module, "__exit__")
    value = module.Range()

    assert enter(value) is value
    assert leave(value, None, None, None) is None

    assert module.said == ["a range", "enters", "a range"]


def test_a_traceback_shows_the_lines_of_pytorch(module: Any) -> None:
    leave = _extended(module, "__exit__")

    with pytest.raises(ValueError, match="PyTorch's own") as raised:
        leave(module.Range(), ValueError, None, None)

    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert last.filename == module.__file__
    assert last.line == 'raise ValueError("PyTorch\'s own")'


@pytest.mark.parametrize("name", ["hidden", "with_default", "with_super"])
def test_what_is_more_than_a_plain_function_is_left_alone(module: Any, name: str) -> None:
    assert _extended(module, name) is None


def test_a_file_that_changed_after_its_import_is_not_believed(module: Any) -> None:
    path = Path(module.__file__)
    path.write_text(_FILE.replace('said.append("enters")', 'said.append("enters", 2)'))

    assert _extended(module, "__enter__") is None


def test_a_method_without_source_is_left_alone(module: Any) -> None:
    Path(module.__file__).unlink()

    assert _extended(module, "__enter__") is None
