"""Changes of a process's GPU timing by `ctl`, in words. Standard library only: `run` says them."""

from collections.abc import Sequence

from ncclscope.capture import layout

OFF = layout.GPU_TIMINGS[3]
_MOST = 3  # periods that are named one by one


def off_in_words(changes: Sequence[tuple[str, float]]) -> str:
    """When GPU timing was off, from changes in order, each with its seconds: `off from 12.5 s to
    40.1 s and from 60.0 s on`; "" where it never was.
    """
    periods = []
    for place, (timing, begin) in enumerate(changes):
        if timing != OFF:
            continue
        later = [end for other, end in changes[place + 1 :] if other != OFF]
        periods.append(f"from {begin:.1f} s {f'to {later[0]:.1f} s' if later else 'on'}")
    if not periods:
        return ""
    more = f" and {len(periods) - _MOST} times more" if len(periods) > _MOST else ""
    named = periods[:_MOST]
    if more or len(named) == 1:
        return f"off {', '.join(named)}{more}"
    return f"off {', '.join(named[:-1])} and {named[-1]}"
