"""Tells the recorder what a PyTorch job does. The plugin has the job's own Python run this file.

It needs nothing but the standard library and the recorder's module: Python 3.8 and later, PyTorch
2.1 and later. It replaces two things in PyTorch:

- `record_function.__enter__` and `__exit__`. PyTorch's own parts already say their names with it:
  data loaders, DistributedDataParallel, optimizers, FSDP with its modules, pipelines.
- `Variable._execution_engine`, through which every backward pass goes.

and, where the job has pipelines, what their stages do (ncclscope_pipelines.py).

Everything is compiled with the names of PyTorch's own files: torch.compile does not trace those,
wherever it is when this runs, and torch.jit.script finds source there whose signature fits. Hooks
are set on single modules and only where the user asked for modules; global ones would change what
torch.compile does. Nothing here may raise into the job.
"""

import json
import os
import sys

RECORD_FUNCTION, ENGINE, MODULE, API = 2, 3, 4, 5  # who writes a range, as in the capture format
BACKWARD_TEXT = "autograd.backward"
_LOOK_AFTER = 3  # backward passes: DistributedDataParallel has rebuilt its buckets then
# Further ones where it has not: torch.compile makes backward passes of its own in the first step.
_LOOK_AGAIN_AFTER = 9, 27, 81
_MOST_BLOCKS = 4096
_MOST_GROUPS = 1024
_KERNELS_FILE, _PIPELINES_FILE = "ncclscope_kernels.py", "ncclscope_pipelines.py"  # beside this one
_KERNEL_STEPS = 3  # unless NCCLSCOPE_KERNELS_AT says how many

# The first statements of record_function's methods, and whole methods where a release's own cannot
# be extended; in the globals of torch.autograd.profiler.
_FIRST_STATEMENTS = {"__enter__": "_ncclscope_push(self.name)", "__exit__": "_ncclscope_pop()"}
_RECORD_FUNCTION_SOURCE = """
def __enter__(self):
    _ncclscope_push(self.name)
    return _ncclscope_enter(self)
def __exit__(self, exc_type, exc_value, traceback):
    try:
        return _ncclscope_exit(self, exc_type, exc_value, traceback)
    finally:
        _ncclscope_pop()
"""
# Stands for the engine; in the globals of torch.autograd.graph.
_ENGINE_SOURCE = """
class _NcclscopeEngine:
    def __init__(self, inner, looks):
        self._inner = inner
        self._looks = looks
        self._runs = 0
    def __getattr__(self, name):
        return getattr(self._inner, name)
    def run_backward(self, *args, **kwargs):
        _ncclscope_push(_ncclscope_backward, 3)
        try:
            return self._inner.run_backward(*args, **kwargs)
        finally:
            _ncclscope_pop()
            self._runs += 1
            if self._looks:
                self._looks -= 1
                if not self._looks:
                    self._looks = _ncclscope_look()
"""
# Hooks of one module; in the globals of torch.nn.modules.module.
_MODULE_SOURCE = """
def _ncclscope_hooks(text):
    def before(module, args):
        if not _ncclscope_is_compiling():
            _ncclscope_push(text, 4)
    def mark(grads):
        _ncclscope_mark(text, 4)
    def after(module, args, output):
        if _ncclscope_is_compiling():
            return
        _ncclscope_pop()
        first = output[0] if isinstance(output, (tuple, list)) and output else output
        node = getattr(first, "grad_fn", None)
        if node is not None and not _ncclscope_compiled_autograd():
            node.register_prehook(mark)
    return before, after
"""


def attach(recorder):
    """Patches PyTorch, if it is there, and writes down what the job says about itself."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "autograd"):
        return
    parts = _write_facts, _patch_record_function, _patch_engine, _plan_kernels, _patch_pipelines
    for part in (*parts, _write_groups):
        _quietly(recorder, part, recorder, torch)
    # At each communicator more groups may be there.
    recorder.on_communicator(lambda: _quietly(recorder, _write_groups, recorder, torch))
    recorder.on_kernels(lambda: _quietly(recorder, _take_kernels, recorder, torch))


def _quietly(recorder, part, *arguments):
    """Calls a part of the attachment. The job goes on if it fails, and the capture says so."""
    try:
        return part(*arguments)
    except Exception as error:
        why = "%s: %s: %s" % (part.__name__.strip("_"), type(error).__name__, error)
        write(recorder, what="failure", why=why[:200])


def write(recorder, **record):
    recorder.context_line(json.dumps(record, default=str).encode())


# ---- what is replaced ----
def _in_module_of(module, source, **names):
    """Definitions of a source text as if they stood in one of PyTorch's files."""
    module.__dict__.update(names)
    made = {}
    exec(compile(source, module.__file__, "exec"), module.__dict__, made)
    return made


def _patch_record_function(recorder, torch):
    profiler = torch.autograd.profiler
    wrapped = profiler.record_function
    if "_ncclscope_push" in profiler.__dict__:
        return
    made = _in_module_of(
        profiler,
        _RECORD_FUNCTION_SOURCE,
        _ncclscope_push=recorder.push_record_function,
        _ncclscope_pop=recorder.range_pop,
        _ncclscope_enter=wrapped.__enter__,
        _ncclscope_exit=wrapped.__exit__,
    )
    for name, statement in _FIRST_STATEMENTS.items():
        before = wrapped.__dict__[name]
        after = _extended(profiler, before, statement) or made[name]
        after.__wrapped__ = before
        after.__annotations__ = dict(getattr(before, "__annotations__", {}))
        after.__qualname__, after.__module__ = before.__qualname__, before.__module__
        setattr(wrapped, name, after)


def _extended(module, method, statement):
    """The method with one more statement at its beginning; None where that cannot be had.

    A function around it costs a second Python frame, which is most of what a range costs.
    """
    import ast
    import inspect
    import textwrap

    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        ast.increment_lineno(tree, first - 1)  # tracebacks show PyTorch's own lines
        as_written = _method_of(module, tree)
        tree.body[0].body.insert(0, ast.copy_location(ast.parse(statement).body[0], tree.body[0]))
        ast.fix_missing_locations(tree)
        made = _method_of(module, tree)
    except Exception:  # no source, or not a plain function
        return None
    parts = "co_code", "co_names", "co_varnames", "co_freevars"
    own, read = method.__code__, as_written.__code__
    # The file may have changed since it was imported.
    is_same = all(getattr(own, part) == getattr(read, part) for part in parts)
    is_plain = not own.co_freevars and method.__defaults__ is None  # no decorator, no super()
    return made if is_same and is_plain else None


def _method_of(module, tree):
    """The function that a tree defines, without annotations: their names may be gone."""
    arguments = tree.body[0].args
    for argument in (*arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    tree.body[0].returns = None
    made = {}
    exec(compile(tree, module.__file__, "exec", dont_inherit=True), module.__dict__, made)
    return made[tree.body[0].name]


def _patch_engine(recorder, torch):
    import torch.autograd.graph as graph
    from torch.autograd import Variable

    if type(Variable._execution_engine).__name__ == "_NcclscopeEngine":
        return
    made = _in_module_of(
        graph,
        _ENGINE_SOURCE,
        _ncclscope_push=recorder.range_push,
        _ncclscope_pop=recorder.range_pop,
        _ncclscope_backward=recorder.text(BACKWARD_TEXT) or BACKWARD_TEXT,
        _ncclscope_look=_looker(recorder, torch),
    )
    engine = made["_NcclscopeEngine"](Variable._execution_engine, _LOOK_AFTER)
    Variable._execution_engine = engine


def _patch_pipelines(recorder, torch):
    pipelines = _definitions_of(_PIPELINES_FILE, torch)

    def patch_pipelines():
        pipelines["patch"](recorder, _in_module_of)

    pipelines["when_imported"](lambda: _quietly(recorder, patch_pipelines))


def _definitions_of(name, torch):
    """The definitions of another file of ours, compiled as if it were one of PyTorch's."""
    path = os.path.join(os.path.dirname(__file__), name)
    with open(path, encoding="utf-8") as file:
        source = file.read()
    names = {"__name__": "_" + name.partition(".")[0], "__file__": path}
    exec(compile(source, torch.__file__, "exec"), names)
    return names


# ---- what the job says about itself ----
def _write_facts(recorder, torch):
    facts = {
        "torch": str(torch.__version__),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "level": getattr(recorder, "level", "steps"),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        facts["device"] = torch.cuda.get_device_name()
        facts["compute_stream"] = int(torch.cuda.current_stream().cuda_stream)
    write(recorder, what="facts", **facts)


_written_groups = set()


def _write_groups(recorder, torch):
    """Writes the process groups that were not written yet."""
    groups = []
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and c10d.is_initialized():
        for group in list(c10d._world.pg_map):
            name = str(c10d._world.pg_names.get(group, ""))
            description = str(getattr(group, "group_desc", "") or "")
            groups.append((name, description, c10d.get_process_group_ranks(group)))
        groups += _megatron_groups(c10d)
    vllm = sys.modules.get("vllm.distributed.parallel_state")
    for name, reference in list(getattr(vllm, "_groups", {}).items()):
        group = reference()
        if group is not None:
            groups.append((str(name), str(name), group.ranks))
    _write_new_groups(recorder, groups)


def _megatron_groups(c10d):
    """Groups of Megatron's own table (`_TENSOR_MODEL_PARALLEL_GROUP` …) that have no description:
    older releases of it, and PyTorch before 2.4, give them none.
    """
    table = sys.modules.get("megatron.core.parallel_state")
    groups = []
    for name, group in list(getattr(table, "__dict__", {}).items()):
        is_group = "_GROUP" in name and isinstance(group, c10d.ProcessGroup)
        if not is_group or "GLOO" in name:
            continue
        if getattr(group, "group_desc", "") in ("", "undefined"):
            name = name.strip("_")
            groups.append((name, name, c10d.get_process_group_ranks(group)))
    return groups


def _write_meshes(recorder, objects):
    """Writes the names of a DeviceMesh's dimensions that span all ranks: they have no group of
    their own, so no description says them.
    """
    file = sys.modules.get("torch.distributed.device_mesh")
    kind = getattr(file, "DeviceMesh", None)
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if kind is None or c10d is None or not c10d.is_initialized():
        return
    groups = []
    for mesh in objects:
        if not issubclass(type(mesh), kind):
            continue
        for name in mesh.mesh_dim_names or ():
            try:
                ranks = c10d.get_process_group_ranks(mesh.get_group(name))
            except Exception:  # a mesh without process groups
                continue
            if len(ranks) == c10d.get_world_size():
                groups.append(("mesh_%s" % name, "mesh_%s" % name, ranks))
    _write_new_groups(recorder, groups)


def _write_new_groups(recorder, groups):
    """Writes those of (name, description, ranks) that were not written yet."""
    for name, description, ranks in groups[:_MOST_GROUPS]:
        ranks = [int(rank) for rank in ranks]
        key = (name, tuple(ranks))
        if key not in _written_groups:
            _written_groups.add(key)
            write(recorder, what="group", name=name, description=description, ranks=ranks)


def _looker(recorder, torch):
    """A function that looks at the job's models, some steps into the job. It returns after how many
    backward passes to call it again; 0: never.
    """
    waits = iter(_LOOK_AGAIN_AFTER)
    changing = None  # models whose buckets may be rebuilt

    def look():
        nonlocal changing
        if changing is None:
            changing = _quietly(recorder, _look_at_models, recorder, torch) or []
        else:
            changing = [own for own in changing if _quietly(recorder, _may_change, recorder, own)]
        return next(waits, 0) if changing else 0

    return look


def _look_at_models(recorder, torch):
    """Writes parameters, DistributedDataParallel's buckets, blocks.

    Returns models whose buckets may change.
    """
    import gc
    import weakref

    objects = gc.get_objects()
    _quietly(recorder, _write_meshes, recorder, objects)
    models = _models_of(torch, objects)
    del objects
    total = 0
    for model in models:
        total = max(total, sum(p.numel() for p in model.parameters()))
    if total:
        write(recorder, what="facts", parameters=total)
    _write_facts(recorder, torch)
    references = [weakref.ref(own) for own in models if hasattr(own, "_get_ddp_logging_data")]
    changing = [own for own in references if _quietly(recorder, _may_change, recorder, own)]
    if getattr(recorder, "level", "") == "modules":
        for model in models:
            watch(recorder, torch, model)
    return changing


def _may_change(recorder, reference):
    """Writes the buckets of a model that is still there; whether they are not rebuilt yet."""
    model = reference()
    return model is not None and not _write_buckets(recorder, model)


def _models_of(torch, objects):
    """Of these objects the models that DistributedDataParallel or FSDP wraps; without any, all
    outermost modules.

    50 ms for 165,000 objects. Types are compared, not objects: lazy ones answer isinstance by
    importing.
    """
    kinds = [torch.nn.parallel.DistributedDataParallel]
    for path, name in (
        ("torch.distributed.fsdp", "FSDPModule"),
        ("torch.distributed.fsdp", "FullyShardedDataParallel"),
        ("torch.distributed._composable.fsdp", "FSDPModule"),
    ):
        kind = getattr(sys.modules.get(path), name, None)
        if kind is not None:
            kinds.append(kind)
    kinds = tuple(kinds)
    modules = [one for one in objects if issubclass(type(one), torch.nn.Module)]
    wrapped = [one for one in modules if issubclass(type(one), kinds)]
    candidates = wrapped or modules
    inside = set()
    for one in candidates:
        inside.update(id(child) for child in one.modules() if child is not one)
    return [one for one in candidates if id(one) not in inside]


def _write_buckets(recorder, model):
    """Writes the parameters of each bucket, in the order in which they are reduced, and its address
    where that can be known; whether they are rebuilt, and so final.
    """
    data = model._get_ddp_logging_data()
    sizes = str(data.get("rebuilt_bucket_sizes", "")).split(",")
    members = str(data.get("rebuilt_per_bucket_param_indices", "")).split(",")
    ignored = set(getattr(model, "parameters_to_ignore", ()))
    parameters = [
        (name, parameter.numel() * parameter.element_size())
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in ignored
    ]
    buckets = []
    for size, indices in zip(sizes, members):
        if size.strip().isdigit():
            own = [int(index) for index in indices.split() if int(index) < len(parameters)]
            buckets.append({"bytes": int(size), "parameters": [parameters[k][0] for k in own]})
    rebuilt = bool(buckets)
    if not rebuilt:
        first = [int(size) for size in str(data.get("bucket_sizes", "")).split(",") if size.strip()]
        buckets = _first_buckets(first, parameters)
    if getattr(model, "gradient_as_bucket_view", False):
        gradients = {name: parameter.grad for name, parameter in model.module.named_parameters()}
        for bucket in buckets:
            bucket["address"] = _address([gradients[name] for name in bucket["parameters"]], bucket)
    if buckets:
        write(recorder, what="buckets", buckets=buckets)
    return rebuilt


def _address(gradients, bucket):
    """Where a bucket begins whose gradients are views of it; 0 where they do not fill it."""
    if not gradients or any(gradient is None for gradient in gradients):
        return 0
    spans = [(own.data_ptr(), own.numel() * own.element_size()) for own in gradients]
    first, last = min(start for start, _ in spans), max(start + size for start, size in spans)
    filled = last - first == bucket["bytes"] == sum(size for _, size in spans)
    return first if filled else 0


def _first_buckets(sizes, parameters):
    """Buckets that are never rebuilt (unused parameters, torch.compile): runs of the parameters in
    the order of their definition, reduced from the last one. None where the sizes do not add up.
    """
    buckets, last = [], len(parameters)
    for size in sizes:
        first, rest = last, size
        while rest > 0 and first > 0:
            first -= 1
            rest -= parameters[first][1]
        if rest:
            return []
        buckets.append({"bytes": size, "parameters": [name for name, _ in parameters[first:last]]})
        last = first
    return buckets if last == 0 else []


# ---- kernels ----
def _kernel_taker(recorder, torch):
    """Takes kernels of some steps; its file is read at the first request."""
    taker = getattr(recorder, "kernel_taker", None)
    if taker is None:
        names = _definitions_of(_KERNELS_FILE, torch)
        taker = recorder.kernel_taker = names["KernelTaker"](recorder, torch, write)
    return taker


def _take_kernels(recorder, torch):
    """`ncclscope ctl --kernels` asks."""
    _kernel_taker(recorder, torch).ask(recorder.kernel_steps, recorder.kernels_after_ns)


def _plan_kernels(recorder, torch):
    """`ncclscope run --kernels-at STEP[:STEPS]` has asked."""
    planned = os.environ.get("NCCLSCOPE_KERNELS_AT", "")
    if planned:
        step, _, steps = planned.partition(":")
        _kernel_taker(recorder, torch).ask(int(steps or _KERNEL_STEPS), at_step=int(step))


# ---- modules ----
def blocks_of(model):
    """Names and modules worth a range: members of lists whose siblings are of one class, and the
    direct children of the model.
    """
    inner = getattr(model, "module", model) if hasattr(model, "_get_ddp_logging_data") else model
    if type(inner).__name__ == "OptimizedModule":
        return {}  # compiled as a whole: hooks inside never run, and may break its graphs
    chosen = dict(inner.named_children())
    for name, module in inner.named_modules():
        children = list(module.named_children())
        kinds = {type(child) for _, child in children}
        is_list = type(module).__name__ in ("ModuleList", "Sequential")
        if is_list and len(children) > 1 and len(kinds) == 1:
            chosen.pop(name, None)
            for key, child in children:
                chosen["%s.%s" % (name, key) if name else key] = child
    return dict(list(chosen.items())[:_MOST_BLOCKS])


def watch(recorder, torch, model, depth="blocks"):
    """Sets hooks on blocks of a model, or on all modules (`depth="all"`)."""
    import torch.nn.modules.module as module_file

    if "_ncclscope_hooks" not in module_file.__dict__:
        compiler = getattr(torch, "compiler", None)
        is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)
        made = _in_module_of(
            module_file,
            _MODULE_SOURCE,
            _ncclscope_push=recorder.range_push,
            _ncclscope_pop=recorder.range_pop,
            _ncclscope_mark=recorder.mark,
            _ncclscope_is_compiling=is_compiling,
            _ncclscope_compiled_autograd=_compiled_autograd_is_on,
        )
        module_file.__dict__["_ncclscope_hooks"] = made["_ncclscope_hooks"]
    make = module_file.__dict__["_ncclscope_hooks"]
    named = dict(model.named_modules()) if depth == "all" else blocks_of(model)
    for name, module in named.items():
        compiled = getattr(module, "_compiled_call_impl", None) is not None
        compiled = compiled or type(module).__name__ == "OptimizedModule"
        if not name or compiled or getattr(module, "_ncclscope_watched", False):
            continue  # hooks of a compiled module never run
        before, after = make(recorder.text(name) or name)
        module.register_forward_pre_hook(before)
        module.register_forward_hook(after, always_call=True)
        module.__dict__["_ncclscope_watched"] = True


def _compiled_autograd_is_on():
    """Whether backward passes are compiled: a hook on a node would break their graphs."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    for name in ("compiled_autograd_enabled", "in_compiled_autograd_region"):
        if getattr(compiled, name, False):
            return True
    config = sys.modules.get("torch._dynamo.config")
    return bool(getattr(config, "compiled_autograd", False))


def _attach_as_torch(recorder):
    """Attaches with this file compiled as if it were one of PyTorch's."""
    torch = sys.modules.get("torch")
    if torch is None or not getattr(torch, "__file__", None):
        return
    with open(__file__, encoding="utf-8") as file:
        source = file.read()
    attached = {"__name__": "_ncclscope_attached", "__file__": __file__}
    exec(compile(source, torch.__file__, "exec"), attached)
    attached["attach"](recorder)


if __name__ == "_ncclscope_attach":  # run by the plugin
    _attach_as_torch(sys.modules["_ncclscope_recorder"])
