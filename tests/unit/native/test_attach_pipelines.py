"""What the attached file makes of pipelines, with stand-ins for PyTorch's files."""

import logging
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.support.attached_files import load_attached

pipelines, attached = load_attached("ncclscope_pipelines"), load_attached("ncclscope_attach")

_STAGE = '''
class Op:
    def __init__(self, name):
        self.name = name
class _PipelineStageBase:
    stage_index = 2
    def forward_one_chunk(self, fwd_chunk_id, args=None):
        said.append("computes")
        return args
    def backward_one_chunk(self, bwd_chunk_id, loss=None):
        raise ValueError("the job's own")
    def get_fwd_send_ops(self, fwd_chunk_id):
        """Sends."""
        return [Op("fs")]
    def get_fwd_recv_ops(self, fwd_chunk_id):
        return [Op("fr")]
    def get_bwd_send_ops(self, bwd_chunk_id):
        return [Op("bs")]
    def get_bwd_recv_ops(self, bwd_chunk_id):
        return [Op("br")]
'''
# As PyTorch 2.4 does it: all are started together, after checks.
_SCHEDULES = """
def batch_isend_irecv(ops):
    assert isinstance(ops, list) and all(op.name for op in ops)
    for op in ops:
        said.append(op.name)
        if op.name == "broken":
            raise ValueError("the job's own")
    return len(ops)
def _batch_p2p(p2p_ops, desc=None):
    return batch_isend_irecv(p2p_ops) if p2p_ops else None
"""


class _Recorder:
    def __init__(self) -> None:
        self.said: list[str] = []

    def range_push(self, text: str, source: int) -> None:
        assert source == 2
        self.said.append(f"+{text}")

    def range_pop(self) -> None:
        self.said.append("-")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> _Recorder:
    recorder = _Recorder()
    for name, source in (("stage", _STAGE), ("schedules", _SCHEDULES)):
        file: Any = ModuleType(f"torch.distributed.pipelining.{name}")
        file.__file__, file.said, file.logger = f"/{name}.py", recorder.said, logging.getLogger()
        exec(source, file.__dict__)
        monkeypatch.setitem(sys.modules, file.__name__, file)
    return recorder


def _files() -> tuple[Any, Any]:
    names = ("torch.distributed.pipelining.stage", "torch.distributed.pipelining.schedules")
    stage, schedules = (sys.modules[name] for name in names)
    return stage, schedules


def test_each_of_several_started_together_is_named(recorder: _Recorder) -> None:
    pipelines.patch(recorder, attached._in_module_of)
    files, schedules = _files()
    stage = files._PipelineStageBase()
    ops = stage.get_fwd_recv_ops(5) + stage.get_bwd_recv_ops(bwd_chunk_id=3)
    assert schedules._batch_p2p([*ops, files.Op("other")], desc="both") == 3
    assert recorder.said == [
        "+pipeline.forward.receive stage 2 micro-batch 5", "fr", "-",
        "+pipeline.backward.receive stage 2 micro-batch 3", "br", "-",
        "+pipeline", "other", "-",
    ]  # fmt: skip


def test_a_list_of_one_kind_is_one_range_and_an_empty_one_none(recorder: _Recorder) -> None:
    pipelines.patch(recorder, attached._in_module_of)
    files, schedules = _files()
    stage = files._PipelineStageBase()
    ops = stage.get_bwd_send_ops(1)
    assert schedules._batch_p2p(ops * 2) == 2
    assert schedules._batch_p2p([]) is None
    assert schedules._batch_p2p([files.Op("other")]) == 1
    assert recorder.said == [
        "+pipeline.backward.send stage 2 micro-batch 1", "bs", "bs", "-", "other",
    ]  # fmt: skip


def test_ranges_end_where_the_job_raises(recorder: _Recorder) -> None:
    pipelines.patch(recorder, attached._in_module_of)
    files, schedules = _files()
    stage = files._PipelineStageBase()
    assert stage.forward_one_chunk(0, args=7) == 7
    with pytest.raises(ValueError, match="the job's own"):
        stage.backward_one_chunk(0)
    ops = [*stage.get_fwd_send_ops(0), files.Op("broken"), files.Op("never")]
    with pytest.raises(ValueError, match="the job's own"):
        schedules._batch_p2p(ops)
    pushes = [text for text in recorder.said if text.startswith("+")]
    assert len(pushes) == 4
    assert recorder.said.count("-") == 4


def test_what_replaces_functions_looks_like_them(recorder: _Recorder) -> None:
    files, schedules = _files()
    before = files._PipelineStageBase.get_fwd_send_ops, schedules._batch_p2p
    pipelines.patch(recorder, attached._in_module_of)
    after = files._PipelineStageBase.get_fwd_send_ops, schedules._batch_p2p
    for old, new in zip(before, after, strict=True):
        assert new is not old
        assert (new.__name__, new.__qualname__, new.__doc__) == (
            old.__name__, old.__qualname__, old.__doc__,
        )  # fmt: skip
        assert new.__code__.co_filename in ("/stage.py", "/schedules.py")
        assert new.__wrapped__ is old


def test_a_release_with_other_parts_is_left_alone(recorder: _Recorder) -> None:
    files, schedules = _files()
    del files._PipelineStageBase.get_bwd_send_ops
    before = dict(vars(files._PipelineStageBase)), schedules._batch_p2p
    with pytest.raises(AttributeError, match="get_bwd_send_ops"):  # said in the capture alone
        pipelines.patch(recorder, attached._in_module_of)
    assert (dict(vars(files._PipelineStageBase)), schedules._batch_p2p) == before
