"""Names what the stages of PyTorch's pipelines do: forward or backward of which micro-batch.

Most schedules push no ranges around their sends and receives. The attached file runs this one. It
replaces methods of the stages and the function through which every schedule sends and receives,
when the job has imported torch.distributed.pipelining (PyTorch 2.4 and later). It needs nothing but
the standard library: Python 3.8 and later. Nothing here may raise into the job.
"""

import importlib.util
import sys

_STAGES, _SCHEDULES = "torch.distributed.pipelining.stage", "torch.distributed.pipelining.schedules"

# What replaces methods of stages and a function of schedules; in the globals of their files.
# A list of sends and receives may hold some of forward and some of backward: 1F1B has PyTorch start
# them together. There each is named while PyTorch goes through the list; PyTorch's own checks of
# the list, which are generators and sets, start nothing.
_SOURCE = """
def _ncclscope_part(original, what):
    def part(self, *args, **kwargs):
        _ncclscope_push(_ncclscope_text(what, self, args, kwargs), 2)
        try:
            return original(self, *args, **kwargs)
        finally:
            _ncclscope_pop()
    return part
def _ncclscope_ops(original, what):
    def ops(self, *args, **kwargs):
        made = original(self, *args, **kwargs)
        _ncclscope_name(made, _ncclscope_text(what, self, args, kwargs))
        return made
    return ops
class _NcclscopeOps(list):
    def __iter__(self):
        if _ncclscope_frame(1).f_code.co_name in ("<genexpr>", "<setcomp>"):
            yield from list.__iter__(self)
            return
        for one in list.__iter__(self):
            _ncclscope_push(getattr(one, "_ncclscope", "pipeline"), 2)
            try:
                yield one
            finally:
                _ncclscope_pop()
def _ncclscope_batch(original):
    def _batch_p2p(p2p_ops, *args, **kwargs):
        texts = {getattr(one, "_ncclscope", "") for one in p2p_ops}
        if len(texts) > 1:
            return original(_NcclscopeOps(p2p_ops), *args, **kwargs)
        text = texts.pop() if texts else ""
        if not text:
            return original(p2p_ops, *args, **kwargs)
        _ncclscope_push(text, 2)
        try:
            return original(p2p_ops, *args, **kwargs)
        finally:
            _ncclscope_pop()
    return _batch_p2p
"""
_PARTS = {
    "forward_one_chunk": "forward",
    "backward_one_chunk": "backward",
    "backward_weight_one_chunk": "backward.weight",
}
_OPS = {
    "get_fwd_send_ops": "forward.send",
    "get_fwd_recv_ops": "forward.receive",
    "get_bwd_send_ops": "backward.send",
    "get_bwd_recv_ops": "backward.receive",
}


def _text(what, stage, args, kwargs):
    """`pipeline.forward.send stage 1 micro-batch 3`; the number is the first argument of all."""
    number = args[0] if args else next(iter(kwargs.values()), -1)
    return "pipeline.%s stage %s micro-batch %s" % (what, getattr(stage, "stage_index", -1), number)


def _name(ops, text):
    """Says of sends and receives what they are for."""
    try:
        for one in ops:
            one._ncclscope = text
    except Exception:  # a release whose operations take no names: they have none
        pass


def when_imported(do):
    """Calls `do` once the job has the schedules: now, or when it imports them. Jobs that name their
    device have their communicators before that.
    """
    if _SCHEDULES in sys.modules:
        do()
    else:
        sys.meta_path.insert(0, _ImportWatch(do))


class _ImportWatch:
    """A finder that finds nothing. It has the schedules' loader call `do` after loading them."""

    def __init__(self, do):
        self._do = do

    def find_spec(self, name, path=None, target=None):
        if name != _SCHEDULES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)  # what the other finders say
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute is not None:

            def exec_module(module):
                execute(module)
                self._do()

            spec.loader.exec_module = exec_module
        return spec


def patch(recorder, in_module_of):
    """Names the parts of all pipelines, also of those that exist. A release of PyTorch that has
    other parts is left as it is.
    """
    stages, schedules = sys.modules[_STAGES], sys.modules[_SCHEDULES]
    if "_ncclscope_push" in schedules.__dict__:
        return
    base = stages._PipelineStageBase
    methods = {name: base.__dict__[name] for name in (*_PARTS, *_OPS) if name in base.__dict__}
    missing = {*_OPS, "forward_one_chunk", "backward_one_chunk"} - set(methods)
    if missing:
        raise AttributeError("stages of pipelines have no %s" % ", ".join(sorted(missing)))
    batch = schedules._batch_p2p
    names = {
        "_ncclscope_push": recorder.range_push,
        "_ncclscope_pop": recorder.range_pop,
        "_ncclscope_text": _text,
        "_ncclscope_name": _name,
        "_ncclscope_frame": sys._getframe,
    }
    made = in_module_of(stages, _SOURCE, **names)
    for name, method in methods.items():
        kind = made["_ncclscope_part"] if name in _PARTS else made["_ncclscope_ops"]
        what = _PARTS.get(name) or _OPS[name]
        setattr(base, name, _like(method, kind(method, what)))
    made = in_module_of(schedules, _SOURCE, **names)
    schedules.__dict__["_NcclscopeOps"] = made["_NcclscopeOps"]
    schedules._batch_p2p = _like(batch, made["_ncclscope_batch"](batch))


def _like(before, after):
    """Has a function look like the one that it stands for."""
    after.__wrapped__ = before
    after.__annotations__ = dict(getattr(before, "__annotations__", {}))
    after.__doc__, after.__module__ = before.__doc__, before.__module__
    after.__name__, after.__qualname__ = before.__name__, before.__qualname__
    return after
