"""The terminal screen of `ncclscope top`: textual draws what `cells` says."""

from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from ncclscope.humanize import printable
from ncclscope.live import top_tables
from ncclscope.live.job_follower import JobFollower
from ncclscope.live.recent_operations import RecentOperation, recent_operations
from ncclscope.live.top_model import CommunicatorRow, Overview, Past, RankRow, overview
from ncclscope.live.top_tables import (
    COMMUNICATOR_COLUMNS,
    OPERATION_COLUMNS,
    RANK_COLUMNS,
    WIDTH,
    Column,
)

_RECENT = 200
COMMUNICATORS, RANKS, OPERATIONS = range(3)  # levels
_COLUMNS: tuple[tuple[Column[Any], ...], ...] = (
    COMMUNICATOR_COLUMNS,
    RANK_COLUMNS,
    OPERATION_COLUMNS,
)
_FIRST_SORT = (6, 0, 0)  # time on the GPU; rank; newest
Row = CommunicatorRow | RankRow | RecentOperation


class Top(App[None]):
    """Communicators, their ranks, and what a rank did last: one table at a time."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Static { height: auto; }
    #verdicts { text-style: bold; color: red; }
    #where { text-style: bold; }
    DataTable { height: 1fr; scrollbar-size: 0 0; overflow-x: hidden; }
    Input { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", show=True),
        Binding("escape", "up", "back"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("space", "pause", "pause"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, following: JobFollower, interval_s: float) -> None:
        super().__init__()
        self.following, self.interval_s = following, interval_s
        self.past = Past()
        self.now = Overview((), ())
        self.recent: list[RecentOperation] = []
        self.level = COMMUNICATORS
        self.communicator = ""  # key of the one whose ranks are shown
        self.rank = ""  # key of the one whose operations are shown
        self.sorts = list(_FIRST_SORT)
        self.reversed = [False, True, False]
        self.filter = ""
        self.paused = False
        self.reading = False
        self.trouble = ""

    # ---- parts ----
    def compose(self) -> ComposeResult:
        """Verdicts on top, then jobs, then the table."""
        yield Static(id="verdicts", markup=False)
        yield Static("reading …", id="jobs", markup=False)
        yield Static(id="where", markup=False)
        yield DataTable[Text](cursor_type="row", cell_padding=0, zebra_stripes=False)
        yield Input(placeholder="filter", id="filter", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """The first reading at once, then one each interval."""
        self.theme = "ansi-dark" if "ansi-dark" in self.available_themes else "textual-ansi"
        self.table.focus()
        self.start_reading()
        self.set_interval(self.interval_s, self.start_reading)

    @property
    def table(self) -> "DataTable[Text]":
        """The only one."""
        return self.query_one(DataTable)

    # ---- reading, apart from drawing ----
    def start_reading(self) -> None:
        """Reads in a thread; a slow file system must not stop the keys."""
        if not self.reading and not self.paused:
            self.reading = True
            self.run_worker(self.read, thread=True, exit_on_error=False)

    def read(self) -> None:
        """One reading of all jobs."""
        trouble, now, recent = "", self.now, self.recent
        try:
            self.following.read()
            now = overview(list(self.following.jobs.values()), self.past)
            chosen = _find_rank(_find(now, self.communicator), self.rank)
            recent = recent_operations(chosen.folder, chosen.number, _RECENT) if chosen else []
        except OSError as error:  # what came or went while it was read
            trouble = f"reading failed: {error.strerror or error}"
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self.take, now, recent, trouble)

    def take(self, now: Overview, recent: list[RecentOperation], trouble: str) -> None:
        """What was read, shown."""
        self.reading = False
        self.now, self.recent, self.trouble = now, recent, trouble
        self.draw()

    # ---- drawing ----
    def draw(self) -> None:
        """Everything anew; the cursor stays on its row."""
        communicator = _find(self.now, self.communicator)
        rank = _find_rank(communicator, self.rank)
        width = max(self.size.width, WIDTH)
        verdicts = self.query_one("#verdicts", Static)
        verdicts.update(Text("\n".join(bad := top_tables.verdict_lines(self.now, width))))
        verdicts.display = bool(bad)
        lines = top_tables.job_lines(self.now)
        if self.trouble:
            lines.append(self.trouble)
        if not self.now.jobs and self.following.patterns:
            lines[0] += (
                f" in {' '.join(self.following.patterns)}; `ncclscope report` is for the past"
            )
        self.query_one("#jobs", Static).update(Text("\n".join(lines)))
        self.query_one("#where", Static).update(Text("\n".join(self.where(communicator, rank))))
        rows: list[Row]
        if self.level == COMMUNICATORS:
            rows = [*self.now.communicators]
        elif self.level == RANKS:
            rows = [*communicator.rows] if communicator else []
        else:
            rows = [*self.recent]
        self.fill(rows)

    def where(self, communicator: CommunicatorRow | None, rank: RankRow | None) -> list[str]:
        """Which table this is, and what it is sorted and filtered by."""
        columns = _COLUMNS[self.level]
        title = columns[self.sorts[self.level] % len(columns)].title
        state = f"by {title}" + (f", only {self.filter!r}" if self.filter else "")
        state += ", PAUSED" if self.paused else ""
        if self.level == COMMUNICATORS:
            return [f"communicators ({state}); GB/s over 5 s; enter opens one"]
        if communicator is None:
            return ["this communicator is gone; escape goes back"]
        name = printable(communicator.name)
        if self.level == RANKS:
            return [f"{name}, {communicator.scope}-node ({state}); enter: its last operations"]
        if rank is None:
            return ["this rank is gone; escape goes back"]
        lines = [f"{name}, {line}" if not at else line
                 for at, line in enumerate(top_tables.rank_lines(rank))]  # fmt: skip
        if not self.recent:
            lines.append("single operations need trace mode: ncclscope run --mode trace")
        return lines

    def fill(self, rows: list[Row]) -> None:
        """The table's rows."""
        table, columns = self.table, _COLUMNS[self.level]
        titles = [str(column.label) for column in table.columns.values()]
        wanted = [column.shown(column.title) for column in columns]
        if titles != wanted:
            table.clear(columns=True)
            for at, column in enumerate(columns):
                table.add_column(wanted[at], width=column.width)
        before = self.under_cursor()
        offset = table.scroll_y
        table.clear()
        level = self.level
        shown = top_tables.chosen(
            rows, columns, self.sorts[level], self.reversed[level], self.filter
        )
        keys = [_key(row, at) for at, row in enumerate(shown)]
        for key, row in zip(keys, shown, strict=True):
            style = _style(row)
            table.add_row(*(Text(c.shown(c.cell(row)), style) for c in columns), key=key)
        table.scroll_to(y=offset, animate=False)
        if before in keys:
            table.move_cursor(row=keys.index(before), animate=False, scroll=False)

    def under_cursor(self) -> str:
        """The key of the row under the cursor."""
        table = self.table
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or "")

    # ---- keys ----
    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """One level down."""
        key = str(event.row_key.value or "")
        if self.level == COMMUNICATORS:
            self.level, self.communicator = RANKS, key
        elif self.level == RANKS:
            self.level, self.rank, self.recent = OPERATIONS, key, []
            self.start_reading()
        self.filter = ""
        self.draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a title sorts by it; another one turns the order."""
        if self.sorts[self.level] == event.column_index:
            self.action_reverse()
        else:
            self.sorts[self.level] = event.column_index
            self.draw()

    def action_up(self) -> None:
        """One level up, or out of the filter."""
        box = self.query_one("#filter", Input)
        if box.display or self.filter:
            box.display, box.value, self.filter = False, "", ""
            self.table.focus()
        elif self.level != COMMUNICATORS:
            self.level -= 1
            self.rank = ""
        self.draw()

    def action_sort(self) -> None:
        """By the next column."""
        columns = _COLUMNS[self.level]
        self.sorts[self.level] = (self.sorts[self.level] + 1) % len(columns)
        self.draw()

    def action_reverse(self) -> None:
        """The other way round."""
        self.reversed[self.level] = not self.reversed[self.level]
        self.draw()

    def action_pause(self) -> None:
        """Stands still, until the next time."""
        self.paused = not self.paused
        self.draw()

    def action_filter(self) -> None:
        """Asks for a text that rows must have."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """While it is typed."""
        self.filter = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        """Back to the table, with the filter on."""
        self.query_one("#filter", Input).display = False
        self.table.focus()


def _key(row: Row, at: int) -> str:
    if isinstance(row, CommunicatorRow):
        return row.key
    return f"{row.folder}\0{row.number}" if isinstance(row, RankRow) else str(at)


def _style(row: Row) -> str:
    if isinstance(row, CommunicatorRow):
        hung = row.verdict is not None and row.verdict.hung
        return "bold red" if hung else "yellow" if row.late is not None else ""
    if isinstance(row, RankRow):
        return "" if row.life == "alive" else "bold red"
    return "" if row.state == "done" else "yellow"


def _find(now: Overview, key: str) -> CommunicatorRow | None:
    return next((row for row in now.communicators if row.key == key), None)


def _find_rank(communicator: CommunicatorRow | None, key: str) -> RankRow | None:
    rows = communicator.rows if communicator else ()
    return next((row for row in rows if _key(row, 0) == key), None)
