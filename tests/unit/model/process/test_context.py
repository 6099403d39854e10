"""Step, phase and module of every call of jobs whose ranges are planted."""

from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.capture import layout
from ncclscope.model.process.context import ContextRows, inherit_captured, module_of_bucket
from ncclscope.model.process.range_meaning import meaning_of, number_in
from ncclscope.model.schema import CONTEXTS, NONE
from tests.support.writer.training import (
    AUTOGRAD,
    MS,
    PlantedCall,
    Program,
    write_ddp,
    write_fsdp2,
)

_CALLS = """
select step, phase, module_name, coalesce(prefetch, 0) = 1 from operations
order by process, call_ns
"""


def _recorded(capture: Path) -> list[PlantedCall]:
    return [PlantedCall(*row) for row in ncclscope.open(capture).sql(_CALLS).fetchall()]


def _planted(programs: list[Program]) -> list[PlantedCall]:
    return [call for program in programs for call in program.truth]


def _single(capture: Path, program: Program) -> list[PlantedCall]:
    program.write(capture)
    return _recorded(capture)


@pytest.mark.parametrize("write", [write_fsdp2, write_ddp])
def test_every_planted_call_is_found_again(tmp_path: Path, write) -> None:
    programs = write(tmp_path)
    assert _recorded(tmp_path) == _planted(programs)


def test_it_says_how_it_knows(tmp_path: Path) -> None:
    write_ddp(tmp_path)
    query = 'select "function", context, count(*) from operations group by 1, 2 order by 1, 2'
    assert ncclscope.open(tmp_path).sql(query).fetchall() == [
        ("AllReduce", "bucket", 24),
        ("Broadcast", "range", 8),
        ("Broadcast", None, 2),
    ]


def test_buckets_of_ddp_are_known_by_address_whatever_the_order(tmp_path: Path) -> None:
    """All are of one size, and so is a call of the program's own between them."""
    modules = {0x7000: "layers.2", 0x8000: "layers.1", 0x9000: "layers.0", 0xA000: None}
    program = Program(0, 1)
    listed = [
        {"bytes": 4096, "parameters": [f"module.{module}.weight"], "address": address}
        for address, module in modules.items()
        if module
    ]
    program.context.append({"what": "buckets", "buckets": listed})
    orders = ((0x7000, 0x8000, 0x9000), (0xA000, 0x9000, 0x7000, 0x8000), (0x8000, 0xA000, 0x9000))
    for step, order in enumerate(orders):
        with program.range("autograd.backward", layout.RANGE_ENGINE):
            for address in order:
                truth = PlantedCall(step, "backward", modules[address])
                program.call("AllReduce", 1024, truth, AUTOGRAD, send_buffer=address)
        with program.range("Optimizer.step#SGD.step"):
            program.wait(MS)
    assert _single(tmp_path, program) == program.truth


def test_steps_have_times_of_their_phases(tmp_path: Path) -> None:
    write_fsdp2(tmp_path, data_ns=7 * MS)
    rows = ncclscope.open(tmp_path).sql(
        "select step, origin, data_ns, end_ns - start_ns - data_ns - forward_ns - backward_ns "
        "- optimizer_ns from steps where process = 0 order by step"
    )
    for number, (step, origin, data_ns, rest_ns) in enumerate(rows.fetchall()):
        assert (step, origin) == (number, "optimizer")
        assert abs(data_ns - 7 * MS) < MS / 100
        assert abs(rest_ns) < MS / 10


def test_marks_come_before_optimizers_and_number_the_steps(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in (100, 101, 102):
        with program.range("DistributedDataParallel.forward"):
            program.call("AllReduce", 64, PlantedCall(step, "forward", None))
        for _ in range(2):  # two optimizers of one class
            with program.range("Optimizer.step#Adam.step"):
                program.wait(MS)
        program.mark("ncclscope.tokens", payload=4096)
        program.mark("ncclscope.step", payload=step)
    assert _single(tmp_path, program) == program.truth
    rows = ncclscope.open(tmp_path).sql("select step, origin, tokens from steps").fetchall()
    assert rows == [(100, "marks", 4096), (101, "marks", 4096), (102, "marks", 4096)]


def test_two_optimizers_of_one_class_make_one_step(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in range(3):
        with program.range("autograd.backward", layout.RANGE_ENGINE):
            program.call("AllReduce", 64, PlantedCall(step, "backward", None))
        for _ in range(2):
            with program.range("Optimizer.step#Adam.step"):
                program.wait(MS)
    assert _single(tmp_path, program) == program.truth


@pytest.mark.parametrize("optimizers", [1, 2])
def test_steps_of_a_cuda_graph_end_with_the_optimizer(tmp_path: Path, optimizers: int) -> None:
    """Three steps are eager, then backward is replayed: no range lies between the optimizers."""
    program = Program(0, 1)
    for step in range(20):
        if step < 3:
            with program.range("autograd.backward", layout.RANGE_ENGINE):
                program.call("AllReduce", 64, PlantedCall(step, "backward", None))
        program.wait(MS)
        for _ in range(optimizers):
            with program.range("Optimizer.step#Adam.step"):
                program.wait(MS)
    assert _single(tmp_path, program) == program.truth
    steps = ncclscope.open(tmp_path).sql("select step, end_ns - start_ns from steps").fetchall()
    assert [step for step, _ in steps] == list(range(20))
    assert all(abs(length_ns - (1 + optimizers) * MS) < MS / 2 for _, length_ns in steps[1:])


def test_data_loaders_part_the_steps_of_a_cuda_graph(tmp_path: Path) -> None:
    """A graph that was captured before the first step."""
    program = Program(0, 1)
    with program.range("autograd.backward", layout.RANGE_ENGINE):
        program.call("AllReduce", 64, PlantedCall(0, "backward", None))
    for _ in range(3):
        with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            program.wait(MS)
        with program.range("Optimizer.step#Adam.step"):
            program.wait(MS)
    program.write(tmp_path)
    rows = ncclscope.open(tmp_path).sql("select step from steps").fetchall()
    assert rows == [(0,), (1,), (2,)]


def test_replays_have_what_is_known_of_the_captured_call() -> None:
    """Call 0 by its range, call 1 by a mark, call 2 not at all; a replay without a captured call."""
    call = np.array([0, 1, 2, 0, 1, 2, 1, 3, NONE])
    replay = np.array([False, False, False, True, True, True, True, True, False])
    none = np.zeros(len(call), np.int64)
    rows = ContextRows(
        key=none, time_ns=none, call=call, began_ns=none, replay=replay,
        thread=none.astype(np.int32), size_bytes=none, is_all_reduce=none.astype(bool),
    )  # fmt: skip
    made, mark, by_range, by_time = [1, 2, NONE], *map(CONTEXTS.index, ("mark", "range", "time"))
    columns = {
        "phase": np.array([*made, 3, NONE, NONE, NONE, NONE, NONE], np.int8),
        "module": np.array([7, 8, NONE, 7, NONE, NONE, NONE, NONE, NONE], np.int32),
        "prefetch": np.array([1, 0, 0, 0, 0, 0, 0, 0, 0], np.int8),
        "context": np.array([by_range, mark, *[by_time] * 6, NONE], np.int8),
    }
    inherit_captured(columns, rows)
    assert columns["phase"].tolist() == [*made, *made, 2, NONE, NONE]
    assert columns["module"].tolist() == [7, 8, NONE, 7, 8, NONE, 8, NONE, NONE]
    assert columns["prefetch"].tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    replayed = CONTEXTS.index("replay")
    assert columns["context"].tolist() == [
        by_range, mark, by_time, replayed, replayed, by_time, replayed, by_time, NONE,
    ]  # fmt: skip


def test_between_backward_passes_is_no_backward(tmp_path: Path) -> None:
    """A pipeline whose schedule pushes no ranges: forward lies between its backward passes."""
    program = Program(0, 1)
    for step in range(3):
        for _ in range(4):
            program.wait(3 * MS)
            program.call("Send", 64, PlantedCall(step, None, None))
            with program.range("autograd.backward", layout.RANGE_ENGINE):
                program.wait(MS)
        with program.range("Optimizer.step#SGD.step"):
            program.wait(MS)
    program.truth[0] = PlantedCall(None, None, None)  # steps begin with the first range
    assert _single(tmp_path, program) == program.truth
    rows = ncclscope.open(tmp_path).sql("select backward_ns from steps").fetchall()
    assert [round(backward_ns / MS) for (backward_ns,) in rows] == [4, 4, 4]


def test_numbered_ranges_are_steps(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in range(7, 12):
        with program.range(f"iteration {step}", layout.RANGE_NVTX):
            for layer in range(3):
                with program.range(f"layer {layer}", layout.RANGE_NVTX):
                    program.call("AllReduce", 64, PlantedCall(step, None, None))
    assert _single(tmp_path, program) == program.truth


def test_the_step_under_way_has_no_end(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in range(2):
        with program.range("autograd.backward", layout.RANGE_ENGINE):
            program.call("AllReduce", 64, PlantedCall(step, "backward", None))
        with program.range("Optimizer.step#SGD.step"):
            program.wait(MS)
    program.push("autograd.backward", layout.RANGE_ENGINE)
    program.call("AllReduce", 64, PlantedCall(2, "backward", None))
    assert _single(tmp_path, program) == program.truth
    rows = ncclscope.open(tmp_path).sql("select step, end_ns is null from steps").fetchall()
    assert rows == [(0, False), (1, False), (2, True)]


def test_forward_inside_backward_is_backward(tmp_path: Path) -> None:
    program = Program(0, 1)
    program.push("autograd.backward", layout.RANGE_ENGINE)
    with program.range("FSDP::pre_forward (layers.1)"):  # checkpointing computes it again
        program.call("AllGather", 64, PlantedCall(0, "backward", "layers.1"))
    program.pop()
    with program.range("Optimizer.step#SGD.step"):
        program.wait(MS)
    assert _single(tmp_path, program) == program.truth


def test_marks_of_modules_name_the_backward_calls_behind_them(tmp_path: Path) -> None:
    program = Program(0, 1)
    for layer in ("layers.1", "layers.0"):
        program.mark(layer, layout.RANGE_MODULE, thread=AUTOGRAD)
        program.call("AllReduce", 64, PlantedCall(None, "backward", layer), AUTOGRAD)
    assert _single(tmp_path, program) == program.truth


def test_a_push_that_is_never_popped_ends_with_the_range_around_it(tmp_path: Path) -> None:
    program = Program(0, 1)
    program.push("DistributedDataParallel.forward")
    program.push("layers.3", layout.RANGE_MODULE)
    program._threads["python3"].open.pop()  # the pop goes to the range around it
    program.pop()
    program.wait(MS)
    program.call("AllReduce", 64, PlantedCall(0, None, None))
    assert _single(tmp_path, program) == program.truth


def test_texts_without_a_place_in_the_table_are_read_from_their_slots(tmp_path: Path) -> None:
    program = Program(0, 1)
    with program.range("!FSDP::all_gather (layers.9)"):
        program.call("AllGather", 64, PlantedCall(None, None, "layers.9"))
    assert _single(tmp_path, program) == program.truth


def test_what_fsdp_does_for_no_named_module_is_for_the_root(tmp_path: Path) -> None:
    program = Program(0, 1)
    with program.range("FSDP::pre_forward"), program.range("FSDP::all_gather"):
        program.call("AllGather", 64, PlantedCall(None, "forward", "(root)"))
    with program.range("FSDP::pre_forward (layers.0)"), program.range("FSDP::all_gather"):
        program.call("AllGather", 64, PlantedCall(None, "forward", "layers.0"))
    with program.range("FSDP::root_post_backward_callback"):
        program.call("AllReduce", 64, PlantedCall(None, "backward", None))
    assert _single(tmp_path, program) == program.truth


def test_releases_of_fsdp_that_name_no_module_say_none(tmp_path: Path) -> None:
    program = Program(0, 1)
    with program.range("FSDP::pre_forward"), program.range("FSDP::all_gather"):
        program.call("AllGather", 64, PlantedCall(None, "forward", None))
    assert _single(tmp_path, program) == program.truth


def test_processes_without_ranges_have_no_context(tmp_path: Path) -> None:
    program, silent = Program(0, 2), Program(1, 2)
    with program.range("Optimizer.step#SGD.step"):
        program.call("AllReduce", 64, PlantedCall(0, "optimizer", None))
    silent.call("AllReduce", 64, PlantedCall(None, None, None))
    silent.write(tmp_path)
    assert _single(tmp_path, program) == [*program.truth, *silent.truth]


def test_hostile_context_lines_are_left_out(tmp_path: Path) -> None:
    program = Program(0, 1, groups=False)
    program.context = [
        {"what": "group", "ranks": [-1], "description": "mesh_tp"},
        {"what": "group", "ranks": "all", "description": "mesh_tp"},
        {"what": "buckets", "buckets": [{"bytes": "many", "parameters": 3}]},
        {"what": "facts", "device": {"a": 1}, "compute_stream": 1 << 80, "torch": "2\x1b[1m"},
        {"what": "facts", "device": {"a": 1}, "parameters": (1 << 63) - 1, "torch": "2\x1b[1m"},
    ]
    program.call("AllReduce", 64, PlantedCall(None, None, None))
    assert _single(tmp_path, program) == program.truth
    training = ncclscope.open(tmp_path).model.training
    assert (training.torch, training.device, training.compute_streams) == ("2\\x1b[1m", "", {})
    assert training.parameters == 0


def test_process_groups_name_communicators(tmp_path: Path) -> None:
    write_fsdp2(tmp_path)
    query = "select name, dimension, described, name_inferred from communicators"
    assert ncclscope.open(tmp_path).sql(query).fetchall() == [("dp", "dp", "mesh_dp", 0)]


@pytest.mark.parametrize(
    ("text", "phase", "module"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data", ""),
        ("FSDP::all_gather (layers.1)", "", "layers.1"),
        ("FSDP::post_backward_reduce (layers.2)", "backward", "layers.2"),
        ("FullyShardedDataParallel._pre_backward_hook", "backward", ""),
        ("Forward 3", "forward", ""),
        ("DeepSpeedEngine.backward", "backward", ""),
        ("save_checkpoint", "checkpoint", ""),
        ("evaluate", "evaluation", ""),
        ("my range", "", ""),
    ],
)
def test_texts_mean_phases_and_modules(text: str, phase: str, module: str) -> None:
    meaning = meaning_of(text, layout.RANGE_RECORD_FUNCTION)
    assert (meaning.phase, meaning.module) == (phase, module)


def test_examples_in_docstrings_hold() -> None:
    assert number_in("iteration 12") == ("iteration #", 12)
    assert module_of_bucket(("layers.2.a.weight", "layers.2.b.bias")) == "layers.2"
