"""The help of `ncclscope top`: keys and columns."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Static

from ncclscope.live.top_tables import COLUMN_HELP

# What keys do, where a word in the footer is too short for it.
_KEY_HELP = {
    "open": "ranks of a communicator, last operations of a rank",
    "back": "one level up; closes the filter",
    "ranks": "all ranks over all communicators, and back",
    "roles": "communicators pooled by role, and back",
    "sort": "sort by the next column; a click on a title does the same",
    "reverse": "turn the order",
    "filter": "show only rows that contain a text",
    "pause": "stand still, and go on",
    "help": "this help",
}


class Help(ModalScreen[None]):
    """Keys and columns; any key closes it."""

    CSS = """
    Help { align: center middle; }
    Help > Static { width: auto; max-width: 78; height: auto; border: round; padding: 0 1; }
    """

    def __init__(self, bindings: Sequence[BindingType]) -> None:
        super().__init__()
        self.keys = [
            (binding.key_display or binding.key, binding.description)
            for binding in bindings
            if isinstance(binding, Binding) and binding.show
        ]

    def compose(self) -> ComposeResult:
        """The text."""
        lines = [f"{key:>8}  {_KEY_HELP.get(what, what)}" for key, what in self.keys]
        lines.append("")
        lines += [f"{title:>14}  {what}" for title, what in COLUMN_HELP.items()]
        yield Static("\n".join(lines), markup=False)

    def on_key(self, event: Key) -> None:
        """Closes the help."""
        event.stop()
        self.dismiss()
