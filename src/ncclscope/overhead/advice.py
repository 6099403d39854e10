"""What to set, from what each part of profiling adds."""

from collections.abc import Callable

from ncclscope.humanize import three_digits
from ncclscope.overhead.event_steps import KERNELS, PROXY
from ncclscope.overhead.statistics import OverheadShares, Share
from ncclscope.overhead.trials import OverheadTrial

_PartOfShares = Callable[[OverheadShares], Share | None]


def advice_lines(
    trial: OverheadTrial, wall: OverheadShares, cpu: OverheadShares | None
) -> list[str]:
    """What to set to pay less, one line each; why not if there is nothing to set."""
    kernels = _costs(wall, cpu, lambda shares: shares.step(KERNELS))
    proxy = _costs(wall, cpu, lambda shares: shares.step(PROXY))
    ours = _costs(wall, cpu, lambda shares: shares.ours)
    lines: list[str] = []
    if not trial.plugin_is_ours:
        return lines
    if kernels:
        lines.append(
            "set --gpu-timing sampled, before NCCL 2.28 off: it does without KernelCh, for which "
            f"NCCL takes {kernels}"
        )
    if proxy and trial.settings.mode == "full":
        lines.append(f"set --mode trace: NCCL takes {proxy} for events of its proxy")
    if ours and trial.settings.mode != "profile":
        lines.append(f"set --mode profile: writing every event takes {ours}")
    if lines:
        return lines
    answers = _costs(wall, cpu, lambda shares: shares.answer)
    if answers:
        return ["nothing to set: no single part stands out from the noise"]
    return ["nothing to set: no cost stands out from the noise"]


def _costs(wall: OverheadShares, cpu: OverheadShares | None, part: _PartOfShares) -> str:
    """What a part adds where it is more than noise: 2.10 % more time and 31.0 % more CPU time"""
    texts = []
    for shares, name in ((wall, "time"), (cpu, "CPU time")):
        share = part(shares) if shares else None
        if shares and share and share.share > 0 and shares.resolved(share):
            texts.append(f"{three_digits(100 * share.share)} % more {name}")
    return " and ".join(texts)
