"""The terminal screen of `ncclscope top`, drawn by textual; top_tables makes the text."""

import asyncio
import builtins
import signal
from contextlib import suppress
from typing import Any, ClassVar

from rich.console import RenderableType
from rich.text import Text
from rich.traceback import Traceback
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import Worker, WorkerState, get_current_worker

from ncclscope.humanize import printable
from ncclscope.live import top_tables
from ncclscope.live.job_follower import JobFollower
from ncclscope.live.recent_operations import RecentOperation, recent_operations
from ncclscope.live.top_help import Help
from ncclscope.live.top_model import (
    LATE_SHARE,
    RateHistory,
    TopCommunicator,
    TopData,
    TopRank,
    top_data,
)
from ncclscope.live.top_ranks import TopRankTotal, rank_totals
from ncclscope.live.top_roles import TopRole, role_key, role_totals
from ncclscope.live.top_tables import (
    BLAMED_COLUMN,
    COMMUNICATOR_COLUMNS,
    GPU_COLUMN,
    OPERATION_COLUMNS,
    RANK_COLUMNS,
    ROLE_COLUMNS,
    ROLE_GPU_COLUMN,
    TOTAL_COLUMNS,
    WIDTH,
    TopColumn,
)

_RECENT = 200
COMMUNICATORS, RANKS, OPERATIONS, ALL_RANKS, ROLES = range(5)  # levels
_COLUMNS: tuple[tuple[TopColumn[Any], ...], ...] = (
    COMMUNICATOR_COLUMNS,
    RANK_COLUMNS,
    OPERATION_COLUMNS,
    TOTAL_COLUMNS,
    ROLE_COLUMNS,
)
# Columns of the levels: time in kernels, rank, time, waiting caused, time in kernels.
_FIRST_SORT = (GPU_COLUMN, 0, 0, BLAMED_COLUMN, ROLE_GPU_COLUMN)
Row = TopCommunicator | TopRank | RecentOperation | TopRankTotal | TopRole


class Top(App[None]):
    """The app: a table of communicators, of their ranks, or of a rank's last operations."""

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
        Binding("a", "all_ranks", "ranks"),
        Binding("p", "roles", "roles"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("space", "pause", "pause"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("h,f1", "help", "help", show=False),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, follower: JobFollower, interval_s: float) -> None:
        super().__init__()
        self.follower, self.interval_s = follower, interval_s
        self.history = RateHistory()
        self.data = TopData((), ())
        self.recent: list[RecentOperation] = []
        self.level = COMMUNICATORS
        self.role = ""  # key of the one whose communicators are shown; "" for all
        self.communicator = ""  # key of the one whose ranks are shown
        self.rank = ""  # key of the one whose operations are shown
        self.sorts = list(_FIRST_SORT)
        self.reversed = [False, True, False, False, False]
        self.filters = [""] * len(_COLUMNS)  # by level: it is there again after going back
        self.paused = False
        self.reading = False
        self.failure = ""
        self.terminal_failure = ""  # why the terminal can be read or written no more

    # ---- the terminal ----
    def end(self, cause: str) -> None:
        """Ends the screen because the terminal fails; from any thread."""
        self.terminal_failure = cause
        self.call_later(self.exit)

    def panic(self, *renderables: RenderableType) -> None:
        """Ends the screen. A terminal that cannot be read any more gives no traceback."""
        for traceback in renderables:
            if isinstance(traceback, Traceback) and traceback.trace.stacks:
                error = traceback.trace.stacks[0]
                kind = getattr(builtins, error.exc_type, None)
                if isinstance(kind, type) and issubclass(kind, OSError):
                    self.end(error.exc_value)
                    return
        super().panic(*renderables)

    # ---- parts ----
    def compose(self) -> ComposeResult:
        """The widgets: verdicts, jobs, the table's heading, the table, the filter."""
        yield Static(id="verdicts", markup=False)
        yield Static("reading …", id="jobs", markup=False)
        yield Static(id="where", markup=False)
        yield DataTable[Text](cursor_type="row", cell_padding=0, zebra_stripes=False)
        yield Input(placeholder="filter", id="filter", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Starts the first reading, and one each interval."""
        self.theme = "ansi-dark" if "ansi-dark" in self.available_themes else "textual-ansi"
        self.table.focus()
        self.start_reading()
        self.set_interval(self.interval_s, self.start_reading)
        with suppress(ValueError, RuntimeError):  # only the main thread may
            # The default would leave the terminal as the screen needs it.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)

    @property
    def filter(self) -> str:
        """The text that rows of this level must contain."""
        return self.filters[self.level]

    @property
    def table(self) -> "DataTable[Text]":
        """The only table."""
        return self.query_one(DataTable)

    # ---- reading, apart from drawing ----
    def start_reading(self) -> None:
        """Reads in a thread, so that a slow file system does not stop the keyboard."""
        if not self.reading and not self.paused:
            self.reading = True
            self.run_worker(self.read, thread=True, exit_on_error=False)

    def read(self) -> None:
        """Reads all jobs, and the operations of the rank that is open."""
        failure, data, recent = "", self.data, self.recent
        try:
            self.follower.read()
            data = top_data(list(self.follower.jobs.values()), self.history)
            rank = _find_rank(_find(data, self.communicator), self.rank)
            recent = recent_operations(rank.folder, rank.number, _RECENT) if rank else []
        except OSError as error:  # files came or went while they were read
            failure = f"reading failed: {error.strerror or error}"
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self.take, data, recent, failure)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Goes on after a reading that failed for want of memory or of a thread."""
        if event.state == WorkerState.ERROR:
            self.reading, self.failure = False, f"reading failed: {event.worker.error}"
            self.draw()

    def take(self, data: TopData, recent: list[RecentOperation], failure: str) -> None:
        """Shows what was read."""
        self.reading = False
        self.data, self.recent, self.failure = data, recent, failure
        self.draw()

    # ---- drawing ----
    @property
    def width(self) -> int:
        """Columns of the screen."""
        return max(self.size.width, WIDTH)

    def draw(self) -> None:
        """Draws the whole screen; the cursor stays on its row."""
        communicator = _find(self.data, self.communicator)
        rank = _find_rank(communicator, self.rank)
        width = self.width
        verdicts = self.query_one("#verdicts", Static)
        verdicts.update(Text("\n".join(bad := top_tables.verdict_lines(self.data, width))))
        verdicts.display = bool(bad)
        lines = top_tables.job_lines(self.data)
        if self.failure:
            lines.append(self.failure)
        if not self.data.jobs and self.follower.patterns:
            lines[0] += (
                f" in {' '.join(self.follower.patterns)}; `ncclscope report` is for the past"
            )
        self.query_one("#jobs", Static).update(Text("\n".join(lines)))
        self.query_one("#where", Static).update(Text("\n".join(self.where(communicator, rank))))
        rows: list[Row]
        if self.level == COMMUNICATORS:
            everything = self.data.communicators
            rows = [row for row in everything if self.role in ("", role_key(row))]
        elif self.level == ROLES:
            rows = [*role_totals(self.data)]
        elif self.level == RANKS:
            rows = [*communicator.rows] if communicator else []
        elif self.level == ALL_RANKS:
            rows = [*rank_totals(self.data)]
        else:
            rows = [*self.recent]
        self.fill(rows)

    def where(self, communicator: TopCommunicator | None, rank: TopRank | None) -> list[str]:
        """The heading: which table this is, and what it is sorted and filtered by."""
        columns = _COLUMNS[self.level]
        title = columns[self.sorts[self.level] % len(columns)].title
        state = f"by {title}" + (f", only {self.filter!r}" if self.filter else "")
        state += ", PAUSED" if self.paused else ""
        if self.level == COMMUNICATORS:
            of_role = f" of {printable(self.role.partition(chr(0))[2])}" if self.role else ""
            return [f"communicators{of_role} ({state}); GB/s over 5 s; enter opens one"]
        if self.level == ROLES:
            return [f"communicators by role ({state}); enter: those of one role"]
        if self.level == ALL_RANKS:
            return [f"all ranks, over all communicators ({state})"]
        if communicator is None:
            return ["this communicator is gone; escape goes back"]
        name = printable(communicator.name)
        if self.level == RANKS:
            return [f"{name}, {communicator.scope}-node ({state}); enter: its last operations"]
        if rank is None:
            return ["this rank is gone; escape goes back"]
        first, *others = top_tables.rank_lines(rank, self.width)
        lines = [f"{name}, {first}", *others]
        if not self.recent:
            lines.append("single operations need trace mode: ncclscope run --mode trace")
        return lines

    def fill(self, rows: list[Row]) -> None:
        """Fills the table with rows."""
        table, columns = self.table, _COLUMNS[self.level]
        columns = top_tables.fitted_columns(columns, rows, self.width)
        titles = [column.fit(column.title) for column in columns]
        if titles != [str(column.label) for column in table.columns.values()]:
            table.clear(columns=True)
            for title, column in zip(titles, columns, strict=True):
                table.add_column(title, width=column.width)
        before = self.under_cursor()
        offset = table.scroll_y
        table.clear()
        level = self.level
        rows = top_tables.filter_and_sort(
            rows, columns, self.sorts[level], self.reversed[level], self.filter
        )
        keys = [_key(row, place) for place, row in enumerate(rows)]
        for key, row in zip(keys, rows, strict=True):
            style = _style(row)
            table.add_row(*(Text(c.fit(c.text(row)), style) for c in columns), key=key)
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
        """Opens the row: one level down."""
        key = str(event.row_key.value or "")
        if self.level == ROLES:
            self.level, self.role = COMMUNICATORS, key
        elif self.level == COMMUNICATORS:
            self.level, self.communicator = RANKS, key
        elif self.level == RANKS:
            self.level, self.rank, self.recent = OPERATIONS, key, []
            self.start_reading()
        else:
            return
        self.filters[self.level] = ""
        self.draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sorts by the column that was clicked; a second click reverses the order."""
        if self.sorts[self.level] == event.column_index:
            self.action_reverse()
        else:
            self.sorts[self.level] = event.column_index
            self.draw()

    def action_up(self) -> None:
        """Closes the filter, or goes one level up."""
        box = self.query_one("#filter", Input)
        if box.display or self.filter:
            self.filters[self.level] = ""
            box.display, box.value = False, ""
            self.table.focus()
        elif self.level in (ALL_RANKS, ROLES):
            self.level = COMMUNICATORS
        elif self.level == COMMUNICATORS and self.role:
            self.level, self.role = ROLES, ""
        elif self.level != COMMUNICATORS:
            self.level -= 1
            self.rank = ""
        self.draw()

    def action_sort(self) -> None:
        """Sorts by the next column."""
        columns = _COLUMNS[self.level]
        self.sorts[self.level] = (self.sorts[self.level] + 1) % len(columns)
        self.draw()

    def action_reverse(self) -> None:
        """Reverses the order."""
        self.reversed[self.level] = not self.reversed[self.level]
        self.draw()

    def action_all_ranks(self) -> None:
        """Shows all ranks, or the communicators again."""
        self.level = COMMUNICATORS if self.level == ALL_RANKS else ALL_RANKS
        self.draw()

    def action_roles(self) -> None:
        """Shows communicators pooled by role, or each of them again."""
        self.level, self.role = COMMUNICATORS if self.level == ROLES else ROLES, ""
        self.draw()

    def action_help(self) -> None:
        """Shows keys and columns."""
        self.push_screen(Help(self.BINDINGS))

    def action_pause(self) -> None:
        """Stops reading, or starts it again."""
        self.paused = not self.paused
        self.draw()

    def action_filter(self) -> None:
        """Opens the filter's input."""
        box = self.query_one("#filter", Input)
        box.display, box.value = True, self.filter
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters while the user types."""
        self.filters[self.level] = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        """Closes the input and keeps the filter."""
        self.query_one("#filter", Input).display = False
        self.table.focus()


def _key(row: Row, place: int) -> str:
    if isinstance(row, TopCommunicator | TopRole):
        return row.key
    if isinstance(row, TopRankTotal):
        return f"{row.capture}\0{row.rank}"
    return f"{row.folder}\0{row.number}" if isinstance(row, TopRank) else str(place)


def _style(row: Row) -> str:
    if isinstance(row, TopCommunicator):
        hung = row.verdict is not None and row.verdict.hung
        return "bold red" if hung else "yellow" if row.late is not None else ""
    if isinstance(row, TopRole):
        return "bold red" if row.hung else "yellow" if row.late is not None else ""
    if isinstance(row, TopRankTotal) and row.life == "alive":
        return "yellow" if row.blamed > LATE_SHARE else ""
    if isinstance(row, TopRank | TopRankTotal):
        return "" if row.life == "alive" else "bold red"
    return "" if row.state == "done" else "yellow"


def _find(data: TopData, key: str) -> TopCommunicator | None:
    return next((row for row in data.communicators if row.key == key), None)


def _find_rank(communicator: TopCommunicator | None, key: str) -> TopRank | None:
    rows = communicator.rows if communicator else ()
    return next((row for row in rows if _key(row, 0) == key), None)
