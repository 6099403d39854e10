"""Times as users write them: by the clock, relative to the end, or seconds from the start."""

import re
from datetime import datetime, timedelta

from ncclscope.errors import UsageError

_RELATIVE = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS = re.compile(r"\d+(\.\d+)?s?")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_LONGEST_S = 4e9  # over a hundred years
_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def is_length(text: str) -> bool:
    """Whether a text is a length of time: 30s, 5m …"""
    return _RELATIVE.fullmatch(f"-{text}") is not None


def parse_moment(text: str, first_ns: int, last_ns: int, realtime_offset_ns: int) -> int:
    """A time on the capture's clock; `first_ns` and `last_ns` are the start and end of its run."""
    if match := _RELATIVE.fullmatch(text):
        return last_ns - _nanoseconds(float(match[1]) * _UNITS_S[match[2] or "s"])
    if _SECONDS.fullmatch(text):
        return first_ns + _nanoseconds(float(text.removesuffix("s")))
    began = datetime.fromtimestamp((first_ns + realtime_offset_ns) / 1e9).astimezone()
    try:
        moment = _on_the_day(text, began) if _CLOCK.fullmatch(text) else _iso(text)
    except (ValueError, OverflowError):  # the second: years that no clock has
        message = f"cannot understand the time {text}"
        raise UsageError(message, "Write 14:05:30, 2026-11-15T14:05:30, -5m or 12.5") from None
    wall_ns = _nanoseconds(moment.timestamp())
    return wall_ns - realtime_offset_ns


def _nanoseconds(seconds: float) -> int:
    """In steps of a microsecond, and never beyond what 64 bits hold."""
    return round(min(max(seconds, -_LONGEST_S), _LONGEST_S) * 1e6) * 1000


def _iso(text: str) -> datetime:
    """An ISO 8601 time; in this machine's time zone if it has none."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()


def _on_the_day(text: str, began: datetime) -> datetime:
    """That time of day, on the day the capture began; on the next day if it is over 12 h before."""
    hour, minute, *second = text.split(":")
    seconds = float(second[0]) if second else 0.0
    day = began.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    moment = day + timedelta(seconds=seconds)
    return moment + timedelta(days=1) if moment < began - timedelta(hours=12) else moment
