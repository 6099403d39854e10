"""Real PyTorch on the CPU, recorded by the real plugin on the simulated NCCL."""

import json
from pathlib import Path

import ncclscope
from ncclscope.capture.context_lines import read_context
from tests.support.packages import needs
from tests.support.torch_jobs import run_torch

pytestmark = needs("torch")

_DDP = """
from torch.utils.data import DataLoader, TensorDataset
begin("simulated")
model = Net()
ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
optimizer = torch.optim.AdamW(ddp.parameters())
data = TensorDataset(torch.randn(48, 32), torch.randint(0, 4, (48,)))
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=8):
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
print(loss.item())
dist.destroy_process_group()
"""


def test_every_call_of_ddp_has_its_step_phase_and_bucket(tmp_path: Path) -> None:
    plain = run_torch(tmp_path, _DDP)
    assert run_torch(tmp_path, _DDP, record="steps") == plain  # the same numbers
    capture = ncclscope.open(tmp_path / "capture")
    rows = capture.sql(
        "select step, phase, module_name, count(*) from operations "
        "where \"function\" = 'AllReduce' group by 1, 2, 3 order by 1, 3 desc nulls last"
    ).fetchall()
    expected = [(0, "backward", None, 2)]  # one bucket, before they are rebuilt
    for step in range(1, 12):
        for module in ("layers.1", "layers.0", "head … layers.2"):
            expected.append((step, "backward", module, 2))
    assert rows == expected
    steps = capture.sql("select origin, count(*) from steps group by 1").fetchall()
    assert steps == [("optimizer", 24)]
    # Calls that make the model belong to no step; forward sends the rebuilt buckets around.
    others = (
        "select step, phase, count(*) from operations where \"function\" <> 'AllReduce' "
        "group by 1, 2 order by 1"
    )
    assert capture.sql(others).fetchall() == [(1, "forward", 4), (None, None, 6)]
    groups = [
        read_context(tmp_path / "capture" / row.folder).groups for row in capture.model.processes
    ]
    assert [[group.description for group in own] for own in groups] == [["default_pg"]] * 2


def test_buckets_that_are_never_rebuilt_have_their_modules_by_address(tmp_path: Path) -> None:
    """Where gradients are views of the buckets, PyTorch says where the buckets lie."""
    options = "=0.005, find_unused_parameters=True, gradient_as_bucket_view=True"
    run_torch(tmp_path, _DDP.replace("=0.005", options), record="steps")
    (folder, *_) = (row.folder for row in ncclscope.open(tmp_path / "capture").model.processes)
    buckets = read_context(tmp_path / "capture" / folder).buckets
    assert len({bucket.address for bucket in buckets} - {0}) == len(buckets) == 4
    rows = ncclscope.open(tmp_path / "capture").sql(
        "select module_name, count(*), count(distinct step) from operations "
        "where \"function\" = 'AllReduce' and phase = 'backward' group by 1 order by min(call_ns)"
    )
    assert rows.fetchall() == [
        ("layers.2 … head", 24, 12),
        ("layers.1 … layers.2", 24, 12),
        ("layers.0 … layers.1", 24, 12),
        ("layers.0", 24, 12),
        (None, 24, 12),  # which parameters were used
    ]


def test_buckets_below_torch_compile_have_their_modules(tmp_path: Path) -> None:
    """Its own backward passes in the first step are over before the buckets are rebuilt."""
    compiled = 'compiled = torch.compile(ddp, backend="aot_eager")\noptimizer ='
    job = _DDP.replace("optimizer =", compiled, 1).replace("ddp(x)", "compiled(x)")
    for small, large in (("Net()", "Net(512)"), ("48, 32", "48, 512"), ("0.005", "1")):
        job = job.replace(small, large)  # it takes no buckets below 1 MiB
    run_torch(tmp_path, job, record="steps")
    rows = ncclscope.open(tmp_path / "capture").sql(
        "select module_name, count(*), count(distinct step) from operations "
        "where \"function\" = 'AllReduce' and step > 1 group by 1 order by 1"
    )
    modules = rows.fetchall()
    assert [steps for _, _, steps in modules] == [10] * len(modules)
    assert len(modules) > 2
    assert None not in {module for module, _, _ in modules}


# The recorder begins with the first communicator; gloo has none of NCCL's.
_BEGIN_RECORDING = """
def begin_recording():
    if not os.environ.get("NCCLSCOPE_DIR"):
        return None
    from ncclscope.simulation.nccl import SimulatedNccl
    nccl = SimulatedNccl()
    comm = nccl.communicator("world", nccl.unique_id(), 1, 0)
    for _ in range(1000):  # Python makes pending calls between instructions
        pass
    assert "_ncclscope_recorder" in sys.modules
    return nccl, comm
"""

_FSDP2 = (
    _BEGIN_RECORDING
    + """
kept = begin_recording()
begin("gloo")
from torch.distributed.fsdp import fully_shard
model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    nn.functional.cross_entropy(model(torch.ones(4, 32)), torch.ones(4, dtype=torch.long)).backward()
    optimizer.step()
dist.destroy_process_group()
"""
)


def test_fsdp2_names_its_modules(tmp_path: Path) -> None:
    run_torch(tmp_path, _FSDP2, record="steps")
    ranges = ncclscope.open(tmp_path / "capture").table("ranges")
    texts = {row[0] for row in ranges.project("text").fetchall()}
    assert {f"FSDP::all_gather (layers.{layer})" for layer in range(3)} <= texts
    assert {f"FSDP::post_backward_reduce (layers.{layer})" for layer in range(3)} <= texts
    assert "FSDP::backward_prefetch for layers.1" in texts
    assert "autograd.backward" in texts
    open_ranges = ranges.filter("end_ns is null").fetchall()
    assert open_ranges == []


_NEUTRAL = (
    _BEGIN_RECORDING
    + """
import json
import torch._dynamo as dynamo
kept = begin_recording()
facts = {}

def scripted(x: torch.Tensor):
    with torch.autograd.profiler.record_function("inside"):
        y = x + 1
    return y
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        facts["script"] = torch.jit.script(scripted)(torch.ones(1)).item()
    except Exception as error:
        facts["script"] = type(error).__name__

    def helper(t):
        with torch.profiler.record_function("inner"):
            print(end="")
            return t * 3
    @torch.compile(backend="aot_eager")
    def step(t):
        loss = helper(t).sum()
        loss.backward()
        return loss
    x = torch.ones(2, requires_grad=True)
    step(x), step(x)
    model = Net()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
    for _ in range(5):
        loss = compiled(torch.ones(4, 32)).sum()
        loss.backward()
        optimizer.step()
    torch.compile(lambda: optimizer.step(), backend="aot_eager")()
    again = torch.utils.checkpoint.checkpoint(Net(), torch.ones(4, 32), use_reentrant=False)
    again.sum().backward()
with torch.profiler.profile() as profile:
    with torch.profiler.record_function("seen by the profiler"):
        pass
try:
    with torch.profiler.record_function("raises"):
        raise ValueError("the job's own")
except ValueError as error:
    facts["raised"] = str(error)
counters = dynamo.utils.counters
facts |= {
    "loss": loss.item(), "checkpointed": again.sum().item(),
    "graphs": counters["stats"]["unique_graphs"], "operations": counters["stats"]["calls_captured"],
    "breaks": sorted(key.split("\\n")[0] for key in counters["graph_break"]),
    "warnings": sorted(str(one.message)[:80] for one in caught),
    "profiled": any(event.key == "seen by the profiler" for event in profile.key_averages()),
}
print(json.dumps(facts))
"""
)


def test_attaching_changes_nothing_that_pytorch_does(tmp_path: Path) -> None:
    plain = json.loads(run_torch(tmp_path, _NEUTRAL, ranks=1)[0])
    assert plain["script"] == 2.0
    assert plain["profiled"]
    for level in ("steps", "modules"):
        (tmp_path / level).mkdir()
        recorded = json.loads(run_torch(tmp_path / level, _NEUTRAL, ranks=1, record=level)[0])
        assert recorded == plain
        ranges = ncclscope.open(tmp_path / level / "capture").sql(
            "select count(*) filter (text = 'autograd.backward') >= 8, "
            "count(*) filter (text = 'raises'), count(*) filter (end_ns is null) from ranges"
        )
        assert ranges.fetchall() == [(True, 1, 0)]


# Two batches a step, the first without communication; two optimizers; the third step is skipped
# because a gradient is infinite. A process of its own loads the data.
_IRREGULAR = """
import contextlib
from torch.utils.data import DataLoader
begin("simulated")
ddp = nn.parallel.DistributedDataParallel(Net())
inner = ddp.module
optimizers = [
    torch.optim.AdamW(inner.layers.parameters()), torch.optim.SGD(inner.head.parameters(), lr=0.1)
]
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for number, x in enumerate(DataLoader(torch.ones(8, 4, 32), batch_size=None, num_workers=1)):
    accumulates = number % 2 == 0
    with ddp.no_sync() if accumulates else contextlib.nullcontext():
        loss = ddp(x).sum() * (float("inf") if number == 5 else 1.0)
        scaler.scale(loss).backward()
    if not accumulates:
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
print([p.sum().item() for p in ddp.parameters()], scaler.get_scale())
dist.destroy_process_group()
"""


def test_accumulation_several_optimizers_skipped_steps_and_forked_loaders(tmp_path: Path) -> None:
    plain = run_torch(tmp_path, _IRREGULAR)
    assert run_torch(tmp_path, _IRREGULAR, record="steps") == plain
    capture = ncclscope.open(tmp_path / "capture")
    assert len(capture.model.processes) == 2
    rows = capture.sql(
        "select step, phase, count(*) from operations "
        "where \"function\" = 'AllReduce' and step is not null group by all order by all"
    )
    # The skipped step is part of the next one.
    assert rows.fetchall() == [(0, "backward", 2), (1, "backward", 2), (2, "backward", 4)]
    steps = capture.sql("select origin, count(*), min(data_ns) > 0 from steps group by 1")
    assert steps.fetchall() == [("optimizer", 6, True)]


_COMPILED_AUTOGRAD = (
    _BEGIN_RECORDING
    + """
import torch._dynamo as dynamo
from torch._dynamo import compiled_autograd
kept = begin_recording()
model = Net()
for step in range(5):
    with compiled_autograd._enable(torch.compile(backend="eager")):
        model(torch.ones(4, 32)).sum().backward()
print(dict(dynamo.utils.counters["stats"]), sorted(dynamo.utils.counters["graph_break"]))
print(dict(dynamo.utils.counters["compiled_autograd"]), [p.grad.sum().item() for p in model.parameters()])
"""
)


def test_compiled_autograd_has_the_same_graphs(tmp_path: Path) -> None:
    plain = run_torch(tmp_path, _COMPILED_AUTOGRAD, ranks=1)
    assert "'captures'" in plain[0]
    assert run_torch(tmp_path, _COMPILED_AUTOGRAD, ranks=1, record="modules") == plain
    rows = ncclscope.open(tmp_path / "capture").sql(
        "select text, is_mark from ranges where source = 'module' group by all order by all"
    )
    names = ("head", "layers.0", "layers.1", "layers.2")
    assert rows.fetchall() == [(name, 0) for name in names]  # and no marks of backward


_MODULES = (
    _BEGIN_RECORDING
    + """
kept = begin_recording()
begin("gloo")
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
print([p.sum().item() for p in model.parameters()])
dist.destroy_process_group()
"""
)


def test_level_modules_marks_blocks_forward_and_backward(tmp_path: Path) -> None:
    plain = run_torch(tmp_path, _MODULES, ranks=1)
    assert run_torch(tmp_path, _MODULES, ranks=1, record="modules") == plain
    rows = ncclscope.open(tmp_path / "capture").sql(
        "select text, is_mark, count(*) from ranges where source = 'module' group by 1, 2 order by 1, 2"
    )
    # Hooks are set after the third of six backward passes.
    names = ("head", "layers.0", "layers.1", "layers.2")
    assert rows.fetchall() == [(name, mark, 3) for name in names for mark in (0, 1)]


# The number of elements of a call says what it is: 64 * (layer + 1), and one more in backward.
_SIZED = """
begin("simulated")
class BothWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        dist.all_reduce(torch.ones(64 * (layer + 1)))
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(torch.ones(64 * (ctx.layer + 1) + 1))
        return gradient, None

class SizedBlock(Block):
    def __init__(self, layer):
        super().__init__(32)
        self.layer = layer
    def forward(self, x):
        return BothWays.apply(super().forward(x), self.layer)

model = nn.Sequential(*(SizedBlock(layer) for layer in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_level_modules_names_calls_inside_modules_both_ways(tmp_path: Path) -> None:
    """As tensor parallelism makes them."""
    run_torch(tmp_path, _SIZED, record="modules")
    rows = ncclscope.open(tmp_path / "capture").sql(
        "select count, phase, module_name, count(*), count(distinct step) from operations "
        "where step > 2 and \"function\" = 'AllReduce' group by all order by count"
    )
    expected = []
    for layer in range(3):
        for phase in ("forward", "backward"):
            elements = 64 * (layer + 1) + (phase == "backward")
            expected.append((elements, phase, str(layer), 6, 3))
    assert rows.fetchall() == expected


_TWO_LINES = (
    _BEGIN_RECORDING
    + """
import ncclscope.torch
kept = begin_recording()
model = ncclscope.torch.watch(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in ncclscope.torch.steps([torch.ones(4, 32)] * 3, tokens=lambda batch: batch.numel()):
    with ncclscope.torch.range("loss"):
        loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    ncclscope.torch.metric("loss", loss.item())
print(ncclscope.torch.is_recorded())
"""
)


def test_two_lines_say_steps_tokens_and_modules(tmp_path: Path) -> None:
    assert run_torch(tmp_path, _TWO_LINES, ranks=1) == ["False\n"]
    assert run_torch(tmp_path, _TWO_LINES, ranks=1, record="steps")[0].strip() == "True"
    capture = ncclscope.open(tmp_path / "capture")
    steps = capture.sql("select step, origin, tokens from steps order by 1").fetchall()
    assert steps == [(step, "marks", 128) for step in range(3)]
    texts = capture.sql("select distinct text from ranges").fetchall()
    assert {("loss",), ("layers.2",), ("ncclscope.metric loss",)} <= set(texts)
    assert capture.model.training.parameters > 0


_BROKEN = (
    """
del torch.autograd.profiler.record_function.__exit__
"""
    + _BEGIN_RECORDING
    + """
kept = begin_recording()
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
print("fine")
"""
)


def test_what_cannot_be_attached_is_said_in_the_capture_alone(tmp_path: Path) -> None:
    assert run_torch(tmp_path, _BROKEN, ranks=1, record="steps") == ["fine\n"]
    (failure,) = ncclscope.open(tmp_path / "capture").model.training.failures
    assert failure.startswith("patch_record_function: AttributeError")
