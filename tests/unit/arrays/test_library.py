"""The compiled library is the one that Python was made for, and as new as its sources."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ncclscope.arrays import _abi, library
from ncclscope.arrays.library import load
from ncclscope.errors import NcclscopeError
from ncclscope.native import arrays_library_path, empty_plugin_path, player_path
from tests.support.paths import ROOT


def test_a_library_from_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(arrays_library_path()).ncclscope_abi_version() == _abi.VERSION
    monkeypatch.setattr(_abi, "VERSION", _abi.VERSION ^ 1)
    with pytest.raises(NcclscopeError, match=r"built from other sources.*make generate"):
        load(arrays_library_path())


def test_a_library_that_does_not_say_its_sources_is_refused() -> None:
    with pytest.raises(NcclscopeError, match="built from other sources"):
        load(empty_plugin_path())


@pytest.mark.parametrize("name", ["native/arrays/replay.c", "native/arrays/delays.c"])
def test_a_library_that_is_older_than_a_loop_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's arguments are as they were, so the lists do not tell."""
    changed = tmp_path / name
    changed.parent.mkdir(parents=True)
    shutil.copy(ROOT / name, changed)
    monkeypatch.setattr(library, "_CHECKOUT", tmp_path)
    load(arrays_library_path())
    changed.write_text(changed.read_text() + "// changed\n")
    with pytest.raises(NcclscopeError, match=rf"other sources.*: {name}\. .*cmake --build"):
        load(arrays_library_path())


def test_a_library_says_all_sources_that_it_is_compiled_from() -> None:
    lines = load(arrays_library_path()).ncclscope_sources().decode().splitlines()
    named = {line.split()[0] for line in lines}
    folder = ROOT / "native" / "arrays"
    assert {str(path.relative_to(ROOT)) for path in folder.glob("*.[ch]")} <= named
    assert {"native/include/ncclscope/format.h", "native/src/nccl_abi.h"} <= named


def test_structs_are_as_large_as_in_c() -> None:
    structs = json.loads(subprocess.check_output([player_path(), "layout"]))["structs"]
    for name, struct in structs.items():
        python = getattr(_abi, name.title().replace("_", ""))
        assert ctypes.sizeof(python) == struct["bytes"], name
