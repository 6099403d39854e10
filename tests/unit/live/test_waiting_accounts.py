"""Accounts of waiting of running jobs: windows of captures whose truth is known, their sums, and
what becomes of them.
"""

from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.account import waiting_account
from ncclscope.capture.housekeeping import process_folders
from ncclscope.diagnose.hang.verdict import Status
from ncclscope.live.job_events import STRAGGLER, EventFinder
from ncclscope.live.job_follower import FollowedJob
from ncclscope.live.job_metrics import PreviousReading, job_samples
from ncclscope.live.waiting_account import MADE, JobWaiting, Window
from ncclscope.live.waiting_accounts import WaitingAccounts, why_not
from ncclscope.live.waiting_window import WindowAccount, account_of_model, account_window
from ncclscope.model.build import open_model
from ncclscope.model.match.recent_numbers import number_by_times
from ncclscope.model.recent_model import recent_model
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND
from tests.support.laboratory.kinds import all_kinds

SECOND_NS = 1_000_000_000
WHOLE = 1 << 20  # slots of a process: more than these jobs have


# ---- windows ----
@pytest.mark.parametrize(
    "name", ["pipeline 4, late rank", "experts 8, popular one moves, late rank"]
)
def test_of_a_whole_log_it_is_the_account_of_report(name: str, tmp_path: Path) -> None:
    """Sends, receives and what is inferred from them are matched by time alone, and as well."""
    all_kinds()[name].write(tmp_path / "c", 1)
    expected, _ = waiting_account(open_model(tmp_path / "c"), Selection())
    assert expected
    model = recent_model(tmp_path / "c", dict.fromkeys(process_folders(tmp_path / "c"), WHOLE))
    found = account_of_model(model, set(), None, 1 << 62)
    assert isinstance(found, WindowAccount)
    assert found.caused_ns == {row.rank: row.origin_ns for row in expected.ranks}
    assert sum(found.origins_ns.values()) == expected.total_ns


def test_windows_on_end_count_each_wait_once(tmp_path: Path) -> None:
    all_kinds()["pipeline 4, late rank"].write(tmp_path / "c", 1)
    model = recent_model(tmp_path / "c", dict.fromkeys(process_folders(tmp_path / "c"), WHOLE))
    wall_ns = model.realtime_offset_ns
    end_ns = np.asarray(model.tables["operations"]["end_ns"])
    first, last = int(end_ns[end_ns != NONE].min()) + wall_ns, int(end_ns.max()) + wall_ns + 1
    edges = np.linspace(first, last, 5).astype(np.int64).tolist()
    windows = []
    for since, until in zip([None, *edges[1:-1]], edges[1:], strict=True):
        found = account_of_model(model, set(), since, until)
        assert isinstance(found, WindowAccount)
        assert since is None or found.since_ns == since
        assert found.until_ns == until
        windows.append(found)
    whole = account_of_model(model, set(), None, last)
    assert isinstance(whole, WindowAccount)
    sums = sum(sum(window.origins_ns.values()) for window in windows)
    assert sums == sum(whole.origins_ns.values())
    for window in windows[1:]:  # a rank that others wait for all the time
        assert max(window.caused_ns, key=lambda rank: window.caused_ns[rank]) == 1


def test_nothing_new_is_no_window(tmp_path: Path) -> None:
    all_kinds()["ddp 4, late rank"].write(tmp_path / "c", 1)
    newest = dict.fromkeys(process_folders(tmp_path / "c"), WHOLE)
    assert account_window(tmp_path / "c", newest, 1 << 62) == "nothing new was recorded"


def test_what_is_mostly_untimed_has_no_account(tmp_path: Path) -> None:
    all_kinds()["ddp 4, every 5th operation timed, late rank"].write(tmp_path / "c", 1)
    newest = dict.fromkeys(process_folders(tmp_path / "c"), WHOLE)
    assert account_window(tmp_path / "c", newest, None) == "most operations have no GPU times"


# ---- numbers by times ----
def _exchanges(missing: int) -> dict[str, np.ndarray]:
    """Rank 0 sends to rank 1 every 10 ms, and data waits in buffers for up to 25 ms; `missing`:
    receives whose sends were cut off.
    """
    calls = 40
    begins = np.arange(calls) * 10_000_000 + 1
    late = np.where(np.arange(calls) % 8 < 4, 25_000_000, 0)
    rows = {
        "start_ns": np.concatenate([begins[missing:], np.maximum(begins + late - 1_000, 0)]),
        "end_ns": np.concatenate([begins[missing:] + 2_000, begins + late + 3_000]),
        "form": np.repeat([SEND, RECV], [calls - missing, calls]),
        "rank": np.repeat([0, 1], [calls - missing, calls]),
    }
    rows["peer"] = 1 - rows["rank"]
    same = {"communicator": 0, "function": 0, "size_bytes": 8, "node": 0, "inferred": 0,
            "replay": 0, "sequence": 0, "state": 0, "part_of": NONE, "call_order": NONE}  # fmt: skip
    return rows | {name: np.full(2 * calls - missing, value) for name, value in same.items()}


def test_receives_are_numbered_by_the_latest_sends_that_they_can_be_of() -> None:
    for missing in (0, 1, 7):
        columns = _exchanges(missing)
        number_by_times(columns, [0])
        sends, receives = np.split(columns["call_order"], [40 - missing])
        assert (sends == np.arange(missing, 40)).all()
        assert (receives == np.arange(40)).all()


def test_what_fits_nowhere_gets_no_number() -> None:
    columns = _exchanges(0)
    columns["size_bytes"][:40] = 16
    number_by_times(columns, [0])
    assert (columns["call_order"][40:] == NONE).all()
    columns["form"][:] = COLLECTIVE  # has numbers of NCCL's own
    columns["call_order"][:] = 5
    number_by_times(columns, [0])
    assert (columns["call_order"] == 5).all()


# ---- sums ----
def _window(share: float, idle: bool = False) -> Window:
    caused = {0: 0, 1: 0, 2: int(3 * share * SECOND_NS), 3: 0}
    return Window(SECOND_NS, caused, {2: caused[2]} if idle else {}, {"host": caused[2]})


def test_a_rank_is_late_in_two_windows_and_not_for_one_pause() -> None:
    waiting = JobWaiting("h")
    waiting.begin([0, 1, 2, 3], "not yet")
    assert waiting.caused_ns == dict.fromkeys(range(4), 0)
    waiting.add(_window(0.5))
    assert waiting.late_rank(0.1) is None
    waiting.add(_window(0.3))
    assert waiting.late_rank(0.1) == (2, pytest.approx(0.3))
    waiting.add(_window(0.0))
    assert waiting.late_rank(0.1) is None
    assert waiting.covered_ns == 3 * SECOND_NS
    assert waiting.caused_ns[2] == pytest.approx(2.4 * SECOND_NS)
    waiting.stop("files of a process cannot be read")
    assert not waiting.is_made
    assert waiting.covered_ns == 3 * SECOND_NS  # counters stay


def test_duties_in_turn_and_a_lack_of_work_blame_nobody() -> None:
    waiting = JobWaiting("h")
    for _ in range(2):
        waiting.add(_window(0.5, idle=True))
    assert waiting.late_rank(0.1) is None
    waiting = JobWaiting("h")
    for _ in range(2):
        waiting.add(Window(SECOND_NS, dict.fromkeys(range(4), SECOND_NS // 2), {}, {}))
    assert waiting.late_rank(0.1) is None


# ---- jobs ----
def _job(capture: Path, waiting: JobWaiting | None = None) -> FollowedJob:
    return FollowedJob(capture, "h", "run", waiting=waiting)


def test_a_capture_without_an_account_says_why(tmp_path: Path) -> None:
    job = _job(tmp_path)
    assert why_not([job]) == "no process runs"
    accounts = WaitingAccounts()
    accounts.look([job], 0.0)
    samples = job_samples(job, PreviousReading())
    assert samples.values["waiting_account_made"] == {("no process runs",): 0.0}
    assert "waiting_caused_seconds" not in samples.values
    accounts.look([], 10.0)
    assert not accounts.courses


def test_hooks_hear_of_the_rank_that_the_account_blames(tmp_path: Path) -> None:
    waiting = JobWaiting("h", MADE)
    for _ in range(2):
        waiting.add(_window(0.4))
    job = _job(tmp_path, waiting)
    job.status = Status((), 4, 4, 0, 4, 0, False, simulated=True)
    finder = EventFinder((STRAGGLER,))
    assert finder.find([job], 0.0) == []
    (event,) = finder.find([job], 31.0)
    assert event.ranks == (2,)
    assert "40 %" in event.sentence
    assert event.simulation
