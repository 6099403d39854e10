"""The plugin runs a file in the Python around it, which gets native functions. Simulated NCCL."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ncclscope.capture import layout
from ncclscope.capture.process import Process
from ncclscope.native import plugin_path, simulated_nccl_path
from tests.support.range_job import only_process, ranges_of, record

_GIVE_TO_MAIN = "import _ncclscope_recorder as native, __main__\n__main__.native = native\n"
_BEGIN = "job.begin()\nfor _ in range(10000): pass\n"


def _record(folder: Path, attach: str | None, body: str, **variables: str) -> Process:
    """Runs a program with a plugin that has this file beside it."""
    plugin = folder / "plugin.so"
    shutil.copy(plugin_path(), plugin)
    if attach is not None:
        (folder / "ncclscope_attach.py").write_text(attach)
    variables = {"NVTX_INJECTION64_PATH": "", "NCCLSCOPE_TORCH": "steps"} | variables
    return record(folder / "c", body, NCCL_PROFILER_PLUGIN=str(plugin), **variables)


def _context(folder: Path) -> list[object]:
    (path,) = (folder / "c").glob("*/context.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ranges_and_marks_from_python(tmp_path: Path) -> None:
    body = """
number = native.text("by number")
native.range_push("outer", 4)
native.range_push(number, 2, 7); job.send(); native.range_pop()
native.mark("loss", 5, 0.5)
native.range_pop(); native.range_pop()
"""
    process = _record(tmp_path, _GIVE_TO_MAIN, _BEGIN + body)
    outer, inner, mark = ranges_of(process)
    assert (outer.text, outer.source, outer.parent) == ("outer", layout.RANGE_MODULE, "")
    assert (inner.text, inner.source) == ("by number", layout.RANGE_RECORD_FUNCTION)
    assert (inner.parent, inner.payload_type, inner.payload) == ("outer", layout.PAYLOAD_I64, 7)
    assert (mark.text, mark.is_mark, mark.payload_type) == ("loss", True, layout.PAYLOAD_DOUBLE)
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def test_python_and_nvtx_are_stacks_of_their_own(tmp_path: Path) -> None:
    body = """
import nvtx
native.range_push("python"); nvtx.push_range("nvtx"); native.range_pop(); nvtx.pop_range()
nvtx.pop_range(); native.range_pop()
"""
    injected = str(tmp_path / "plugin.so")
    process = _record(tmp_path, _GIVE_TO_MAIN, _BEGIN + body, NVTX_INJECTION64_PATH=injected)
    ends = {one.text: one.end_ns for one in ranges_of(process)}
    assert 0 < ends["python"] < ends["nvtx"]


@pytest.mark.parametrize("level", ["steps", "modules"])
def test_lines_of_context_go_into_the_process_folder(tmp_path: Path, level: str) -> None:
    attach = """
import json, threading, _ncclscope_recorder as native
def say(**facts): assert native.context_line(json.dumps(facts).encode())
say(level=native.level, thread=threading.current_thread().name, name=__name__)
native.on_communicator(lambda: say(event="communicator"))
assert not native.context_line("no bytes") and not native.context_line()
native.context_line(b'"two\\nlines"')
"""
    body = "more = Job(); more.begin()\nfor _ in range(10000): pass\njob.end()\n"
    _record(tmp_path, attach, _BEGIN + body, NCCLSCOPE_TORCH=level)
    first = {"level": level, "thread": "MainThread", "name": "_ncclscope_attach"}
    assert _context(tmp_path) == [first, "two lines", {"event": "communicator"}]


def test_context_is_bounded(tmp_path: Path) -> None:
    attach = """
import _ncclscope_recorder as native
kept = [native.context_line(b'"' + b"x" * 1000000 + b'"') for _ in range(10)]
assert kept == [True] * 4 + [False] * 6, kept
"""
    process = _record(tmp_path, attach, _BEGIN)
    assert len(_context(tmp_path)) == 4
    assert process.notes == ("context.jsonl has reached 4 MB; later lines are left out",)


@pytest.mark.parametrize(
    ("attach", "why"),
    [
        ("raise ValueError('no such thing')", "no such thing"),
        ("this is no Python", "invalid syntax"),
        ("raise SystemExit(3)", "3"),
        ("import a_module_that_nobody_has", "a_module_that_nobody_has"),
        ("import sys; sys.setrecursionlimit(100)\ndef f(): f()\nf()", "recursion"),
    ],
)
def test_a_file_that_fails_is_a_note_and_nothing_else(
    tmp_path: Path, attach: str, why: str
) -> None:
    process = _record(tmp_path, attach, _BEGIN + "job.send(); job.end()")
    (note,) = process.notes
    assert note.startswith("cannot attach to Python: ")
    assert why in note
    assert process.ended


def test_an_interrupt_during_attach_is_the_jobs(tmp_path: Path) -> None:
    attach = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)"
    body = """
try:
    job.begin()
    for _ in range(100000): pass
    time.sleep(30)
except KeyboardInterrupt:
    pass
else:
    sys.exit("nobody was interrupted")
"""
    assert _record(tmp_path, attach, body).notes == (
        "cannot attach to Python: KeyboardInterrupt: ",
    )


def test_off_attaches_nothing(tmp_path: Path) -> None:
    body = _BEGIN + "assert '_ncclscope_recorder' not in sys.modules"
    for number, torch in enumerate(("off", "auto", "")):  # there is no PyTorch in the process
        folder = tmp_path / str(number)
        folder.mkdir()
        process = _record(folder, "raise ValueError", body, NCCLSCOPE_TORCH=torch)
        assert process.notes == ()


def test_a_missing_file_is_a_note(tmp_path: Path) -> None:
    process = _record(tmp_path, None, _BEGIN)
    assert process.notes == ("cannot attach to Python: no ncclscope_attach.py",)


def test_hostile_arguments_do_no_harm(tmp_path: Path) -> None:
    body = """
for one in (None, object(), b"bytes", 1.5, -1, 1 << 200, "\\ud800", "x" * 100000, [], "\\0"):
    native.range_push(one); native.range_push("x", one); native.range_push("x", 2, one)
    native.mark(one); native.mark("x", one, one); native.text(one); native.context_line(one)
    native.on_communicator(one); native.push_record_function(one)
    for _ in range(4): native.range_pop()
for _ in range(10): native.range_pop("and", "more")
native.range_push(); native.range_pop(); native.mark(); native.text(); native.text(1, 2)
native.push_record_function(); native.range_pop()
"""
    process = _record(tmp_path, _GIVE_TO_MAIN, _BEGIN + body)
    assert process.ended
    assert all(one.end_ns >= one.start_ns for one in ranges_of(process))


def test_ranges_of_record_function_keep_their_texts_and_no_references(tmp_path: Path) -> None:
    body = """
class Text(str): pass
text, none = "FSDP::all_gather (blocks.%d)" % rank, sys.getrefcount(None)
before = sys.getrefcount(text)
for one in (text, Text("a subclass is no text"), 7, text) * 50:
    native.push_record_function(one); native.range_pop()
del one
assert sys.getrefcount(text) == before
assert abs(sys.getrefcount(None) - none) < 20
"""
    process = _record(tmp_path, _GIVE_TO_MAIN, "rank = 3\n" + _BEGIN + body)
    ranges = ranges_of(process)
    assert len(ranges) == 200
    texts = [one.text for one in ranges]
    assert texts.count("FSDP::all_gather (blocks.3)") == 100
    assert not any("subclass" in text for text in texts)
    assert {one.source for one in ranges} == {layout.RANGE_RECORD_FUNCTION}


def test_fork_children_and_threads(tmp_path: Path) -> None:
    body = """
assert native.is_recording()
thread = threading.Thread(target=lambda: (native.range_push("in a thread"), native.range_pop()))
thread.start(); thread.join()
if os.fork() == 0:
    native.range_push("child"); native.range_pop(); native.mark("child")
    os._exit(native.is_recording() or native.context_line(b"child"))
assert os.wait()[1] == 0
"""
    process = _record(tmp_path, _GIVE_TO_MAIN, _BEGIN + body)
    assert [one.text for one in ranges_of(process)] == ["in a thread"]


# With Python's lock held, so that pending calls of Python 3.9 to 3.11 are the subinterpreter's.
_IN_SUBINTERPRETER = """
import ctypes as c, os, sys
nccl = c.PyDLL(%r)
class Id(c.Structure): _fields_ = (("bytes", c.c_char * 128),)
unique, comm = Id(), c.c_void_p()
nccl.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)
assert nccl.ncclGetUniqueId(c.byref(unique)) == 0
assert nccl.ncclCommInitRank(c.byref(comm), 1, unique, 0) == 0
for _ in range(10000): pass
assert c.PyDLL(os.environ["NCCL_PROFILER_PLUGIN"]).ncclscope_python_module() == 1
assert "_ncclscope_recorder" not in sys.modules
assert nccl.ncclCommDestroy(comm) == 0
"""
_INTERPRETERS = """
try: import _xxsubinterpreters as interpreters
except ImportError: import _interpreters as interpreters
def run_subinterpreter():
    number = interpreters.create()
    interpreters.run_string(number, open(os.environ["PROGRAM"]).read())
    interpreters.destroy(number)
run_subinterpreter()
job.begin()
for _ in range(10000): pass
native.range_push("main"); native.range_pop()
run_subinterpreter()
more = Job(); more.begin()
for _ in range(10000): pass
"""


def test_subinterpreters_may_use_nccl_and_end(tmp_path: Path) -> None:
    """Nothing of ours is in them, so nothing is lost with them."""
    program = tmp_path / "program.py"
    program.write_text(_IN_SUBINTERPRETER % str(simulated_nccl_path()))
    attach = _GIVE_TO_MAIN + "native.on_communicator(lambda: native.mark('another'))\n"
    process = _record(tmp_path, attach, _INTERPRETERS, PROGRAM=str(program))
    assert process.ended
    texts = [one.text for one in ranges_of(process)]
    assert (texts.count("main"), texts[-1]) == (1, "another")
    note = "a subinterpreter uses NCCL: what its Python does is not recorded"
    assert set(process.notes) <= {note}


def test_a_library_gets_the_module_before_the_first_communicator(tmp_path: Path) -> None:
    body = """
assert c.PyDLL(os.environ["NCCL_PROFILER_PLUGIN"]).ncclscope_python_module() == 0
import _ncclscope_recorder as native
native.range_push("early"); assert not native.is_recording()
job.begin(); job.send()
native.range_pop()
"""
    process = _record(tmp_path, None, body, NCCLSCOPE_TORCH="off")
    (early,) = ranges_of(process)
    assert (early.text, early.end_ns > early.start_ns) == ("early", True)


_OTHER_PYTHON = """
import ctypes as c, sys, time
nccl = c.CDLL(sys.argv[1])
class Id(c.Structure): _fields_ = (("bytes", c.c_char * 128),)
unique, comm = Id(), c.c_void_p()
nccl.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)
assert nccl.ncclGetUniqueId(c.byref(unique)) == 0
assert nccl.ncclCommInitRank(c.byref(comm), 1, unique, 0) == 0
end = time.time() + 30
while "native" not in globals() and time.time() < end: time.sleep(0.01)
for i in range(10000):
    native.range_push("a"); native.range_push(native.text("b"), 2, i)
    native.range_pop(); native.range_pop()
assert nccl.ncclCommDestroy(comm) == 0
"""


def _interpreter(release: str) -> str:
    """The path of a Python, behind whatever script leads to it; empty: there is none."""
    found = shutil.which(f"python{release}") or ""
    command = [found, "-c", "import sys; print(sys.executable)"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False) if found else None
    return ran.stdout.strip() if ran and ran.returncode == 0 else ""


@pytest.mark.parametrize("release", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.13t"])
def test_every_python_from_3_8_on(tmp_path: Path, release: str) -> None:
    """Isolated, so that neither path nor user packages of the job matter."""
    python = _interpreter(release)
    if not python:
        pytest.skip(f"there is no python{release} here")
    shutil.copy(plugin_path(), tmp_path / "plugin.so")
    (tmp_path / "ncclscope_attach.py").write_text(_GIVE_TO_MAIN)
    environment = {
        "NCCL_PROFILER_PLUGIN": str(tmp_path / "plugin.so"), "NCCLSCOPE_DIR": str(tmp_path / "c"),
        "NCCLSCOPE_MODE": "trace", "NCCLSCOPE_TORCH": "steps",
    }  # fmt: skip
    command = [python, "-I", "-c", _OTHER_PYTHON, simulated_nccl_path()]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    process = only_process(tmp_path / "c")
    assert process.notes == ()
    assert len(ranges_of(process)) == 20_000
