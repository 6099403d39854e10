"""Process groups that the attached file writes down, with stand-ins for the libraries."""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.attached_files import load_attached

attached = load_attached("ncclscope_attach")


class _Group:
    def __init__(self, ranks: list[int], description: str = "undefined") -> None:
        self.ranks, self.group_desc = ranks, description


class _Mesh:
    def __init__(self, groups: dict[str, _Group]) -> None:
        self.mesh_dim_names = tuple(groups)
        self._groups = groups

    def get_group(self, name: str) -> _Group:
        return self._groups[name]


class _Recorder:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def context_line(self, line: bytes) -> bool:
        self.lines.append(json.loads(line))
        return True

    def groups(self) -> dict[str, list[int]]:
        """Ranks by description."""
        return {line["description"]: line["ranks"] for line in self.lines}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> _Recorder:
    """Four ranks, whose world is the only group that PyTorch knows."""
    world = _Group([0, 1, 2, 3], "default_pg")
    c10d: Any = ModuleType("torch.distributed.distributed_c10d")
    c10d.ProcessGroup, c10d.is_initialized = _Group, lambda: True
    c10d._world = SimpleNamespace(pg_map={world: None}, pg_names={world: "0"})
    c10d.get_process_group_ranks = lambda group: group.ranks
    c10d.get_world_size = lambda: 4
    monkeypatch.setitem(sys.modules, c10d.__name__, c10d)
    monkeypatch.setattr(attached, "_written_groups", set())
    return _Recorder()


def test_megatrons_table_names_groups_without_a_description(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: Any = ModuleType("megatron.core.parallel_state")
    table._TENSOR_MODEL_PARALLEL_GROUP = _Group([0, 1])
    table._DATA_PARALLEL_GROUP = _Group([0, 2])
    table._DATA_PARALLEL_GROUP_GLOO = _Group([0, 2])
    table._PIPELINE_MODEL_PARALLEL_GROUP = _Group([0, 3], "described by itself")
    table._EXPERT_MODEL_PARALLEL_GROUP = None
    monkeypatch.setitem(sys.modules, table.__name__, table)
    attached._write_groups(recorder, None)
    assert recorder.groups() == {
        "default_pg": [0, 1, 2, 3],
        "TENSOR_MODEL_PARALLEL_GROUP": [0, 1],
        "DATA_PARALLEL_GROUP": [0, 2],
    }


def test_vllms_table_names_its_groups(recorder: _Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Any = ModuleType("vllm.distributed.parallel_state")
    table._groups = {"tp:0": lambda: SimpleNamespace(ranks=[0, 1]), "pp:0": lambda: None}
    monkeypatch.setitem(sys.modules, table.__name__, table)
    attached._write_groups(recorder, None)
    attached._write_groups(recorder, None)
    assert len(recorder.lines) == 2
    assert recorder.groups()["tp:0"] == [0, 1]


def test_a_dimension_of_a_mesh_that_spans_all_ranks_is_named(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file: Any = ModuleType("torch.distributed.device_mesh")
    file.DeviceMesh = _Mesh
    monkeypatch.setitem(sys.modules, file.__name__, file)
    whole, part = _Group([0, 1, 2, 3]), _Group([0, 1])
    attached._write_meshes(recorder, [object(), _Mesh({"dp": whole}), _Mesh({"tp": part}), 7])
    assert recorder.groups() == {"mesh_dp": [0, 1, 2, 3]}
