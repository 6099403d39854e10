"""The account of waiting that is kept beside a saved model: used where it is of this model alone."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.time_selection import model_between
from ncclscope.analysis.waiting import account as accounts
from ncclscope.analysis.waiting import kept_account as kept_accounts
from ncclscope.analysis.waiting.kept_account import kept_account, kept_waiting_account
from ncclscope.capture.deletion import delete
from ncclscope.model.build import open_model
from ncclscope.model.store import kept_answers
from tests.support.writer import Straggler, SyntheticSpec, synthetic

SPEC = SyntheticSpec(processes=4, operations=120, straggler=Straggler(2, 2_000_000, 0.5))
Record = dict[str, dict[str, list[list[object]]]]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    synthetic(tmp_path / "capture", SPEC)
    return tmp_path / "capture"


def file_of(capture: Path) -> Path:
    return capture / "model" / "account.json"


def test_a_second_reader_gets_what_the_first_one_made(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(capture)
    made = kept_waiting_account(model, Selection())
    assert made[0] is not None
    assert made[0].origins
    assert made[1]
    monkeypatch.setattr(accounts, "waiting_of", None)  # nothing is made now
    assert kept_waiting_account(open_model(capture), Selection()) == made
    with pytest.raises(TypeError):
        kept_waiting_account(model, Selection(ranks=(0, 1)))


def test_a_part_of_the_run_is_made_and_not_kept(capture: Path) -> None:
    model = open_model(capture)
    middle = int(model.tables["operations"]["start_ns"].mean())
    first_half = model_between(model, Selection(until_ns=middle))
    of_half = kept_waiting_account(first_half, Selection())
    assert not file_of(capture).exists()
    whole = kept_waiting_account(model, Selection())
    assert whole != of_half
    assert kept_waiting_account(first_half, Selection()) == of_half


def test_another_model_and_another_version_are_made_anew(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(capture)
    kept_waiting_account(model, Selection())
    assert kept_account(model) is not None
    assert kept_account(replace(model, seal="another")) is None
    monkeypatch.setattr(kept_accounts, "_VERSION", kept_accounts._VERSION + 1)
    assert kept_account(model) is None


def _cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


def _flip(text: bytes) -> bytes:
    middle = len(text) // 2
    return text[:middle] + bytes([text[middle] ^ 1]) + text[middle + 1 :]


@pytest.mark.parametrize("damage", [_cut, _flip, lambda _: b"", lambda _: b"{}", lambda _: b"\xff"])
def test_a_damaged_one_is_made_again(capture: Path, damage: Callable[[bytes], bytes]) -> None:
    model = open_model(capture)
    made = kept_waiting_account(model, Selection())
    whole = file_of(capture).read_bytes()
    file_of(capture).write_bytes(damage(whole))
    assert kept_account(model) is None
    assert kept_waiting_account(model, Selection()) == made
    assert file_of(capture).read_bytes() == whole


def _foreign_communicator(record: Record) -> None:
    for origin in record["account"]["origins"]:
        origin[2] = 99


def _text_for_number(record: Record) -> None:
    record["account"]["ranks"][0][1] = "3"


def _no_kind(record: Record) -> None:
    record["account"]["origins"][0][0] = "weather"


def _one_value_less(record: Record) -> None:
    record["account"]["ranks"][0].pop()


@pytest.mark.parametrize(
    "change", [_foreign_communicator, _text_for_number, _no_kind, _one_value_less]
)
def test_whoever_can_write_the_file_cannot_make_readers_fail(
    capture: Path, change: Callable[[Record], None]
) -> None:
    model = open_model(capture)
    kept_waiting_account(model, Selection())
    record = json.loads(file_of(capture).read_bytes().split(b"\n")[2])
    change(record)
    kept_answers.keep_answer(model, "account", kept_accounts._VERSION, record)
    assert kept_account(model) is None


def test_it_is_deleted_with_the_capture(capture: Path) -> None:
    kept_waiting_account(open_model(capture), Selection())
    assert file_of(capture).exists()
    assert delete(capture) == []
    assert not capture.exists()


def test_a_model_that_is_not_kept_has_none(capture: Path) -> None:
    model = replace(open_model(capture), seal="")
    made = kept_waiting_account(model, Selection())
    assert not file_of(capture).exists()
    assert kept_waiting_account(model, Selection()) == made
