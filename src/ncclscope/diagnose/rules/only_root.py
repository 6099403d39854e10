"""A root that everybody waits for by design, as for a parameter server: a remark, and no blame."""

from shlex import quote

from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent


def find(context: RuleContext) -> list[Finding]:
    """A remark, where the root is not late by itself."""
    root = context.only_root
    if root is None or root.rank in _late(context):
        return []
    share = min(root.on_path_ns / context.run.span_ns, 1.0)
    name = context.run.model.communicator_names[root.communicator]
    before, after = (context.run.word("function", code) for code in root.functions)
    host = context.run.host_of.get(root.rank, "")
    return [
        Finding(
            "straggler",
            INFO,
            f"rank {root.rank}{context.where(root.rank)} is the only root on {name}: everybody "
            f"waits for what it does between {before} and {after}, typically "
            f"{duration(root.typical_ns)}; that is {percent(share)} of the run",
            "no other rank does this, so whether it is slow cannot be told; all ranks share it "
            "with AllReduce, or with ReduceScatter and AllGather",
            kind="only root",
            ranks=(root.rank,),
            hosts=(host,) if host else (),
            communicators=(name,),
            evidence=(
                Evidence(
                    f"{root.times:,} times on the critical path",
                    {"times": root.times, "typical_us": round(root.typical_ns / 1e3, 3)},
                    f"ncclscope report {context.path} --comm {quote(name)}",
                ),
            ),
            confidence=0.8,
            lost_share=share,
        )
    ]


def _late(context: RuleContext) -> set[int]:
    """Ranks that other rules name: they say what is longer than at other times."""
    causes = context.root_causes
    late = {delays.rank for delays in causes.ranks} if causes is not None else set()
    return late | {rank for own in context.pauses for rank in own.ranks}
