"""A stage of a pipeline that computes longer than the others: what that costs, and no blame."""

from ncclscope.analysis.waiting.heavy_stages import HeavyStage
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.late_ranks import instead
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import ranks_in_words


def find(context: RuleContext) -> list[Finding]:
    """A remark, where none of these ranks is late by itself."""
    stage, causes = context.heavy_stage, context.root_causes
    late = {delays.rank for delays in causes.ranks} if causes is not None else set()
    if stage is None or late & set(stage.ranks):
        return []
    host_of = context.run.host_of
    alike = ", all of them alike" if len(stage.ranks) > 1 else ", and no other rank does its work"
    return [
        Finding(
            "straggler",
            INFO,
            f"{_compute(stage)} times as long as the median rank{alike}: a stage with more work, "
            f"or with slower GPUs; if it took as long as the others, {instead(stage.prediction)}",
            "compare the layers and the GPUs of this stage with those of the others; if it has "
            "more layers, cut the model in other places",
            kind="stage",
            ranks=stage.ranks,
            hosts=tuple(sorted({host_of[rank] for rank in stage.ranks if rank in host_of})),
            evidence=(
                Evidence(
                    "time of the GPU between operations",
                    {"times": round(stage.times, 3)},
                    f"ncclscope report {context.path} --by rank",
                ),
            ),
            confidence=0.7,
            lost_share=max(min(stage.prediction.gained_share, 1.0), 0.0),
        )
    ]


def _compute(stage: HeavyStage) -> str:
    verb = "compute" if len(stage.ranks) > 1 else "computes"
    return f"{ranks_in_words(stage.ranks)} {verb} {stage.times:.3g}"
