"""A stage of a pipeline that computes longer than the others: what that costs, and no blame."""

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
    return [
        Finding(
            "straggler",
            INFO,
            f"{ranks_in_words(stage.ranks)} compute {stage.times:.3g} times as long as the median "
            "rank, all of them alike: a stage with more work, or with slower GPUs; if it took as "
            f"long as the others, {instead(stage.prediction)}",
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
