"""What each release of PyTorch gives: `python -m benchmarks.torch_releases 2.4.1 2.8.0 …`.

A release is fetched with pip into .bench/wheels, unpacked, tried without a GPU, and deleted. Its
CUDA libraries are not fetched: empty ones stand for them, which say that there is no GPU.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ncclscope
from benchmarks.results import ROOT, publish, rows_of, table
from ncclscope.capture.context_lines import JobContext, read_context
from ncclscope.native import plugin_path

NAME = "torch-releases"
HEADER = [
    "release", "the same numbers, graphs, breaks, warnings, scripts", "steps and phases",
    "DDP's buckets", "blocks", "FSDP2's modules", "pipelines", "descriptions of groups",
    "`--kernels-at`",
]  # fmt: skip
_WHEELS, _UNPACKED = ROOT / ".bench" / "wheels", ROOT / ".bench" / "torch"
_RANKS, _STEPS = 2, 6
_NO_FSDP2 = ("PyTorch has none", "not without a GPU")
_LIMIT_S = 400.0  # of a job that takes 20 s on a quiet machine

# Two ranks on gloo; a communicator of the simulated NCCL has the recorder begin. What a release
# does not have is left out. Each rank prints what must not change.
_PROGRAM = """
import json, os, sys, warnings
import torch, torch.nn as nn, torch.distributed as dist
rank, ranks = int(os.environ["RANK"]), 2
torch.set_num_threads(1)
torch.manual_seed(0)
facts = {"release": torch.__version__}
try:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
except ImportError:
    PipelineStage = None

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(32, 32)
    def forward(self, x):
        return x + torch.relu(self.a(x))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
def train(model, steps, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        model(torch.ones(4, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [float(p.detach().abs().sum()) for p in getattr(model, "module", model).parameters()]
def scripted(x: torch.Tensor):
    with torch.autograd.profiler.record_function("inside"):
        y = x + 1
    return y

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank,
                            world_size=ranks)
    try:
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("pp", "tp"))
    except ImportError:
        mesh = None
    if os.environ.get("NCCLSCOPE_DIR"):
        from ncclscope.simulation.nccl import SimulatedNccl
        nccl = SimulatedNccl()
        kept = nccl.communicator("world", nccl.unique_id(), 1, 0)
        for _ in range(1000): pass
        assert "_ncclscope_recorder" in sys.modules
    ddp = nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=0.005)
    facts["ddp"] = train(ddp, STEPS, 0.0001)
    try:
        facts["script"] = float(torch.jit.script(scripted)(torch.ones(1)))
    except Exception as error:
        facts["script"] = type(error).__name__
    try:
        import torch._dynamo as dynamo
        compiled = torch.compile(Net(), backend="aot_eager")
        facts["compiled"] = train(compiled, 2)
        @torch.compile(backend="aot_eager")
        def broken(t):
            with torch.profiler.record_function("inner"):
                print(end="")
            loss = (t * 3).sum()
            loss.backward()
            return loss
        facts["broken"] = float(broken(torch.ones(2, requires_grad=True)))
        counters = dynamo.utils.counters
        facts["graphs"] = dict(counters["stats"])
        facts["breaks"] = sorted(key.split("\\n")[0] for key in counters["graph_break"])
    except Exception as error:
        facts["compiled"] = type(error).__name__
    fully_shard = None
    # Before 2.6 FSDP2 makes CUDA streams, whatever the device.
    on_cpus = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
    for path in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        try:
            fully_shard = fully_shard or __import__(path, fromlist=["x"]).fully_shard
        except (ImportError, AttributeError):
            pass
    facts["has_fsdp2"] = fully_shard is not None
    try:
        if fully_shard is not None and on_cpus:
            model = Net()
            for layer in model.layers:
                fully_shard(layer, mesh=mesh["tp"])
            fully_shard(model, mesh=mesh["tp"])
            loss = model(torch.ones(4, 32)).sum()
            loss.backward()
            facts["fsdp2"] = float(loss.detach())
    except Exception as error:
        facts["fsdp2"] = "%s: %s" % (type(error).__name__, str(error)[:150])
    if PipelineStage is not None:
        module = nn.Linear(32, 32)
        made = (module, rank, ranks, torch.device("cpu"))
        try:
            stage = PipelineStage(*made)
        except TypeError:  # 2.4: shapes are the caller's
            stage = PipelineStage(*made, input_args=torch.ones(2, 32))
        # Schedule1F1B of 2.4.1 hangs on gloo, without a recorder.
        schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
        for _ in range(2):
            if rank:
                schedule.step(target=torch.zeros(8, 32))
            else:
                schedule.step(torch.ones(8, 32))
        facts["pipeline"] = [float(p.grad.abs().sum()) for p in module.parameters()]
facts["warnings"] = sorted(str(one.message)[:80] for one in caught)
dist.destroy_process_group()
print(json.dumps(facts))
"""
_Facts = dict[str, object]  # what a rank printed
_CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
_UNDEFINED = re.compile(r"\*UND\*\s+[0-9a-f]+\s+(?:\((\S+)\)\s+|(Base)\s+)?(\S+)")
_CUDA_SYMBOL = re.compile(r"_*(cu|nv|nccl|CU)[A-Za-z]")


def _unpack(release: str) -> Path:
    """The wheel of a release, unpacked, with empty CUDA libraries where it wants some."""
    _WHEELS.mkdir(parents=True, exist_ok=True)
    if not list(_WHEELS.glob(f"torch-{release}[-+]*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(_WHEELS)]
        subprocess.run([*command, f"torch=={release}"], check=True)
    (wheel,) = _WHEELS.glob(f"torch-{release}[-+]*.whl")
    shutil.rmtree(_UNPACKED, ignore_errors=True)  # of a run that was interrupted
    subprocess.run(
        ["unzip", "-q", str(wheel), "-d", str(_UNPACKED), "-x", "torch/include/*"], check=True
    )
    _add_empty_libraries(_UNPACKED / "torch" / "lib")
    return _UNPACKED


def _add_empty_libraries(folder: Path) -> None:
    """Libraries whose functions all return 100: there is no device."""
    files = list(folder.glob("*.so*"))
    missing: set[str] = set()
    versions: dict[str, set[str]] = {}  # by symbol
    libraries: dict[str, str] = {}  # by version
    for file in files:
        said = subprocess.run(["objdump", "-p", "-T", file], capture_output=True, text=True).stdout
        missing |= {own for own in re.findall(r"NEEDED\s+(\S+)", said) if _CUDA_LIBRARY.match(own)}
        for library, lines in re.findall(r"required from (\S+):\n((?:\s+0x.*\n)+)", said):
            libraries |= {line.split()[-1]: library for line in lines.splitlines()}
        for version, _, symbol in _UNDEFINED.findall(said):
            if _CUDA_SYMBOL.match(symbol):
                versions.setdefault(symbol, set()).add(version)
    for name in missing - {file.name for file in files}:
        own = next((version for version, library in libraries.items() if library == name), "")
        functions = [symbol for symbol, wanted in versions.items() if own in wanted]
        source = "".join(f"int {function}(void) {{ return 100; }}\n" for function in functions)
        script = folder / "versions.map"
        script.write_text(f"{own} {{ global: *; }};\n")
        options = [f"-Wl,--version-script={script}"] if own else []
        command = ["gcc", "-w", "-shared", "-nostdlib", "-fno-builtin", "-x", "c", "-"]
        command += ["-o", str(folder / name), f"-Wl,-soname,{name}", *options]
        subprocess.run(command, input=source, text=True, check=True)


def _run(torch: Path, capture: Path | None) -> list[_Facts]:
    """What each rank printed."""
    store = ROOT / ".bench" / "store"
    store.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": f"{torch}:{ROOT / 'src'}",
        "OMP_NUM_THREADS": "1",
        "STORE": str(store),
    }
    if capture:
        environment |= {
            "NCCL_PROFILER_PLUGIN": str(plugin_path()),
            "NCCLSCOPE_DIR": str(capture),
            "NCCLSCOPE_MODE": "trace",
            "NCCLSCOPE_TORCH": "modules",
            "NCCLSCOPE_KERNELS_AT": "4:1",
        }
    program = ROOT / ".bench" / "torch-program.py"  # torch.jit.script reads it
    program.write_text(_PROGRAM.replace("STEPS", str(_STEPS)))
    jobs = [
        subprocess.Popen(
            [sys.executable, str(program)], env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(_RANKS)
    ]  # fmt: skip
    facts = []
    for job in jobs:
        try:
            out, err = job.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            for own in jobs:
                own.kill()
            out, err = job.communicate()
        if job.returncode:
            raise SystemExit(f"the job ended with {job.returncode}: {err[-2000:]}")
        facts.append(json.loads(out.splitlines()[-1]))
    return facts


def _row(plain: list[_Facts], recorded: list[_Facts], capture: Path) -> list[str]:
    """One row of the table."""
    opened = ncclscope.open(capture)
    contexts = [read_context(capture / row.folder) for row in opened.model.processes]

    def count(where: str) -> int:
        (row,) = opened.sql(f"select count(*) from ranges where {where}").fetchall()
        return int(row[0])

    steps = opened.sql(
        "select count(*) from steps where origin = 'optimizer' and backward_ns > 0"
    ).fetchall()[0][0]
    has_fsdp2 = isinstance(plain[0].get("fsdp2"), float)
    modules = count(
        "text like 'FSDP::%(layers.%' or text like 'FSDP::backward_prefetch for layers.%'"
    )
    sends = count("contains(text, '.send stage') or contains(text, '.receive stage')")
    differ = sorted(key for key in plain[0] if plain[0][key] != recorded[0].get(key))
    failures = [why for context in contexts for why in context.failures]
    return [
        str(plain[0]["release"]),
        "yes" if plain == recorded else f"no: {', '.join(differ)}",
        _said(steps >= _RANKS * _STEPS and not failures, f"{steps} steps; {failures}"),
        _said(all(own.buckets for own in contexts), "none"),
        _said(count("source = 'module' and is_mark = 1 and text like 'layers.%'") > 0, "none"),
        _said(modules > 0, "no names") if has_fsdp2 else _NO_FSDP2[bool(plain[0]["has_fsdp2"])],
        _said(sends == 32, f"{sends} of 32") if "pipeline" in plain[0] else "PyTorch has none",
        _descriptions(contexts),
        _said(all(own.kernels and own.kernels[0].name for own in contexts), "no trace"),
    ]


def _said(holds: bool, otherwise: str) -> str:
    return "yes" if holds else f"no: {otherwise}"


def _descriptions(contexts: list[JobContext]) -> str:
    descriptions = {group.description for own in contexts for group in own.groups}
    return "yes" if "mesh_pp" in descriptions else "no: inferred"


def main() -> None:
    """Tries the releases on the command line; rows of others stay."""
    rows: dict[str, list[object]] = {str(row[0]): row for row in rows_of(NAME)}
    for release in sys.argv[1:]:
        torch, capture = _unpack(release), ROOT / ".bench" / "torch-capture"
        shutil.rmtree(capture, ignore_errors=True)
        plain, recorded = _run(torch, None), _run(torch, capture)
        row = _row(plain, recorded, capture)
        rows[row[0]] = list(row)
        print(row, flush=True)
        shutil.rmtree(torch)
        order = sorted(rows, key=lambda name: [int(n) for n in re.findall(r"\d+", name)[:3]])
        note = (
            "Two ranks on gloo without a GPU, Python "
            f"{sys.version_info.major}.{sys.version_info.minor}, with `--torch=modules` and "
            "without; releases with `+cu` have empty CUDA libraries. Pipelines: all 32 sends and "
            "receives of ScheduleGPipe are named."
        )
        publish(NAME, f"{table(HEADER, [rows[name] for name in order])}\n\n{note}")


if __name__ == "__main__":
    main()
