"""What `ncclscope top` shows."""

from ncclscope.live.top_screen import Top


def screen_text(app: Top) -> str:
    """The screen as text, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
