"""What rules say about ranks that others wait for: how grave it is, what it costs, what to do."""

import numpy as np

from ncclscope.analysis.waiting.late_hosts import began_by_rank_ns
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.rank_delays import Delays, delays_of
from ncclscope.analysis.waiting.sampled_delays import SampledDelays
from ncclscope.analysis.waiting.standing_out import began_on_one
from ncclscope.analysis.waiting.what_if import Change
from ncclscope.diagnose.finding import CRITICAL, GRAVE_SHARE, INFO, PROBLEM_SHARE, WARNING
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, duration_range, percent

IDLE = "it sends to all others, and may have had nothing to send"
SCHEDULES = "it prepares what it sends to all others, and no other rank does such work"
IDLE_ROOTS = "they send to all others, and may have had nothing to send"

_NOTHING = 0.005  # of the run: a gain that may be less is no range

# Kinds of edges as users know them.
KINDS = {
    "host after sync": "compute",
    "host": "compute",
    "launch": "launch",
    "gpu": "gpu",
}
CAUSES = {
    "compute": "it comes late to the call: its compute or its host code takes longer",
    "launch": "it calls in time, and its host is slow to launch the kernel",
    "gpu": "its GPU takes longer from one operation to the next",
}
ADVICE = {
    "compute": "look at this rank's share of work, its data loader, its GPU clocks and thermals",
    "launch": "look for a busy or throttled CPU on its host, wrong CPU affinity, other processes",
    "gpu": "compare its share of work, GPU clocks, thermals and kernel times with another rank's",
}


def late_by_sample(context: RuleContext) -> list[SampledDelays]:
    """Ranks whose delays are a problem by a sample of operations. Predictions know of the timed
    operations alone, so what these ranks cost is an estimate.
    """
    return [delays for delays in context.sampled_delays if delays.share >= PROBLEM_SHARE]


def only_origin(context: RuleContext) -> tuple[Delays, Prediction] | None:
    """The rank that nearly all waiting began on, and the run without it, where that is surely
    shorter. It may be late too seldom for a habit, or be tied to others too loosely to stand out.
    """
    waiting, what_if, account = context.waiting, context.what_if, context.account
    if waiting is None or what_if is None or what_if.why_not or account is None:
        return None
    began_ns = began_by_rank_ns(waiting, account)
    place = int(np.argmax(began_ns))
    if not began_on_one(began_ns, place):
        return None
    rank = int(waiting.kernels.ranks[place])
    prediction = what_if.predict(Change(ranks=(rank,)))
    if prediction.least_gained_share < PROBLEM_SHARE:
        return None
    return delays_of(waiting, rank), prediction


def severity(context: RuleContext, share: float) -> str:
    """How grave a cost is. The start-up is not judged, and is no part of the whole."""
    judged_ns = context.waiting.judged_ns if context.waiting is not None else 0
    scale = max(context.run.span_ns / max(judged_ns, 1), 1.0) if judged_ns else 1.0
    if share * scale < PROBLEM_SHARE:
        return INFO
    return CRITICAL if share * scale >= GRAVE_SHARE else WARNING


def cost_in_words(
    context: RuleContext, prediction: Prediction | None, share: float, who: str, alone: str = ""
) -> str:
    """What delays cost: a prediction, or a share of the run where others cost time as well.
    `alone`: what it gains if nothing else is mended.
    """
    if context.what_if is not None and context.what_if.why_not:
        return f"{context.what_if.why_not}, and what that costs cannot be told from them"
    if prediction is None:
        return f"waiting for {who} costs {percent(share)} of the run{alone}"
    return f"without that {instead(prediction)}"


def instead(prediction: Prediction) -> str:
    """What the run takes without it: "the run would take 5.49 s instead of 6.44 s". Where the
    record does not show what waits for what: "the run would take 5.0 to 5.9 s instead of 6.44 s",
    or, where that may be nothing, "the run of 6.44 s would be up to 22 % shorter".
    """
    run = duration(prediction.run_now_ns)
    if not prediction.is_sure and prediction.least_gained_share < _NOTHING:
        most = percent(prediction.most_gained_share)
        return f"the run of {run} would be up to {most} shorter: how much cannot be told"
    if not prediction.is_sure:
        return f"the run would take {duration_range(*prediction.range_ns)} instead of {run}"
    text = f"the run would take {duration(prediction.run_then_ns)} instead of {run}"
    now, then = prediction.step_now_ns, prediction.step_then_ns
    if now is not None and then is not None:
        text += f", a step {duration(then)} instead of {duration(now)}"
    return text
