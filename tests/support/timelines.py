"""Timelines of captures, for tests."""

import time

from ncclscope.web.session import Timeline


def wait_until_done(timeline: Timeline) -> None:
    """Until everything of a capture is in the scene."""
    end = time.monotonic() + 120
    while timeline.progress or timeline.scene.model is None:
        assert time.monotonic() < end, timeline.progress
        assert timeline.trouble == ""
        time.sleep(0.02)
