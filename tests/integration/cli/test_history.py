"""`ncclscope history` on written captures: eight hosts, of which one is late in every job."""

import json
from pathlib import Path
from typing import Any

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from ncclscope.cli import main
from ncclscope.history.reader import History
from ncclscope.simulation.scenario import Call, Communicators, Late, Range, Scenario
from tests.support.history_jobs import write_capture_of_job

USUAL_JOBS, STEPS, LATE_MS = 5, 40, 3.0


def write_job_capture(
    path: Path, number: int, compute_ms: float, size: int = 1 << 20, first: str = "AllReduce"
) -> Path:
    """A job that began an hour after the one before it; rank 2, alone on its host, is late."""
    calls = (Call("world", first, 1 << 20), Call("dp", "AllReduce", size))
    scenario = Scenario(
        ranks=8, steps=STEPS, compute_ms=compute_ms, late=(Late(2, LATE_MS),), ranks_per_host=1,
        communicators=(Communicators("world"), Communicators("dp", 4, 2)), calls=calls,
    )  # fmt: skip
    write_capture_of_job(path, scenario, number, seed=0 if first == "SendRecv" else number)
    return path


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("captures")
    usual = [write_job_capture(folder / f"job{n}", n, 4.0) for n in range(USUAL_JOBS)]
    slow = write_job_capture(folder / "slow", USUAL_JOBS, 6.0)
    return [*usual, slow]


@pytest.fixture(scope="module")
def history(captures: list[Path]) -> Path:
    path = captures[0].parent / "history"
    assert main(["history", "add", str(path), *map(str, captures)]) == 0
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["history", *map(str, words), "--json"]) == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def said(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["history", *map(str, words)]) == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def host_of_rank_2(history: Path) -> str:
    query = "select host from rows where place = 2"
    return str(History(history).query("hosts", query)[0][0])


def test_jobs_are_listed_the_newest_first(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = answer(capsys, "list", history)["jobs"]
    assert [job["label"] for job in jobs] == ["slow", *(f"job{n}" for n in (4, 3, 2, 1, 0))]
    assert {(job["ranks"], job["hosts"], job["mode"]) for job in jobs} == {(8, 8, "trace")}
    assert len({job["shape"] for job in jobs}) == 1, "how long a job computes is not its shape"
    assert len(said(capsys, "list", history, "--last", "2").splitlines()) == 4


def test_the_late_host_is_named_with_what_the_account_of_waiting_says(
    captures: list[Path], history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = host_of_rank_2(history)
    found = answer(capsys, "trend", history)
    assert found["late_hosts"] == [bad]
    assert f"host {bad} is late again and again" in said(capsys, "trend", history)
    (trend,) = answer(capsys, "trend", history, "--host", bad)["trends"]
    run = Run(ncclscope.open(captures[0]).model)
    waiting = waiting_of(run)
    assert waiting is not None
    late = next(row for row in account_of(waiting).ranks if row.rank == 2)
    assert trend["points"][0]["values"][0] == late.origin_ns / (8 * run.span_ns)
    assert late.origin_ns > 7 * STEPS / 4 * LATE_MS * 1e6, "at least in a quarter of the steps"


def test_roles_have_trends(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trends = answer(capsys, "trend", history, "--comm", "dp")["trends"]
    assert [trend["subject"] for trend in trends] == ["dp of 4 ranks, AllReduce 1 MiB float32"]
    assert len(trends[0]["points"]) == USUAL_JOBS + 1


def test_modules_have_trends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls of one module grow in the last job, those of the other one do not."""
    sizes = (1 << 20, 1 << 20, 1 << 23)
    ranges = tuple(Range(f"FSDP::all_gather (blocks.{call})", call, call) for call in (0, 1))
    for number, size in enumerate(sizes):
        scenario = Scenario(
            ranks=4, steps=12, compute_ms=2, ranks_per_host=2, ranges=ranges,
            communicators=(Communicators("dp", 4),),
            calls=(Call("dp", "AllReduce", 1 << 20), Call("dp", "AllReduce", size)),
        )  # fmt: skip
        write_capture_of_job(tmp_path / f"job{number}", scenario, number, seed=number)
        said(capsys, "add", tmp_path / "history", tmp_path / f"job{number}")

    def trend_of(module: str) -> dict[str, Any]:
        (trend,) = answer(capsys, "trend", tmp_path / "history", "--module", module)["trends"]
        return dict(trend)

    grown, usual = trend_of("blocks.1"), trend_of("blocks.0")
    assert grown["subject"] == "module blocks.1"
    for number, point in enumerate(grown["points"]):
        text = (
            "select count(*), sum(duration_ns)::bigint, sum(wait_ns)::bigint from operations "
            "where module_name = 'blocks.1' and duration_ns is not null"
        )
        timed, total_ns, wait_ns = ncclscope.open(tmp_path / f"job{number}").sql(text).fetchall()[0]
        assert point["values"] == [total_ns / timed, wait_ns / total_ns]
    ratios = [t["points"][-1]["values"][0] / t["points"][0]["values"][0] for t in (grown, usual)]
    assert ratios[0] > 2 * ratios[1]
    assert "module blocks.1" in said(capsys, "trend", tmp_path / "history", "--module", "blocks.1")
    missing = said(capsys, "trend", tmp_path / "history", "--module", "blocks.9", code=2)
    assert "blocks.9" in missing
    assert "blocks.1" in missing


def test_a_slower_job_differs_from_equal_ones(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = answer(capsys, "diff", history)
    assert (slower["job"]["label"], slower["verdict"]) == ("slow", "slower")
    assert len(slower["equal_jobs"]) == USUAL_JOBS
    rounds = next(row for row in slower["measures"] if row["name"] == "a round")
    assert rounds["change"] > 1.1
    usual = answer(capsys, "diff", history, "--job", "job4")
    assert usual["verdict"] == "same"
    few = answer(capsys, "diff", history, "--job", "job2")
    assert (few["verdict"], len(few["equal_jobs"])) == ("unresolved", 2)
    assert "Not judged: it takes 3 equal jobs" in said(capsys, "diff", history, "--job", "job2")


def test_a_capture_is_compared_with_equal_jobs_of_a_history(
    captures: list[Path], history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_name = answer(capsys, "diff", history)
    words = ["compare", "--history", str(history), str(captures[-1]), "--json", "--gate"]
    assert main(words) == 3, "slower"
    compared = json.loads(capsys.readouterr().out)
    for key in ("verdict", "equal_jobs", "measures"):
        assert compared[key] == by_name[key]
    assert sorted(row["name"] for row in compared["kinds"]) == [
        "dp AllReduce 1 MiB float32",
        "world AllReduce 1 MiB float32",
    ]
    assert main(["compare", "--history", str(history), *map(str, captures[:2])]) == 2
    assert main([*words, "--equal-jobs", "4"]) == 3
    assert json.loads(capsys.readouterr().out)["equal_jobs"] == by_name["equal_jobs"][-4:]
    assert main([*words, "--equal-jobs", "2"]) == 5, "of two jobs nothing is judged"
    for wrong, why in (([*words, "--equal-jobs", "0"], "leaves no job"),
                       (["compare", "--equal-jobs", "3", "a", "b"], "needs jobs")):  # fmt: skip
        capsys.readouterr()
        assert main(wrong) == 2
        assert why in capsys.readouterr().err


def test_diagnose_says_what_earlier_jobs_say_about_a_job(
    captures: list[Path], history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = host_of_rank_2(history)

    def past(*words: str) -> dict[str, dict[str, Any]]:
        """Findings of the history by kind; all others are those without it."""
        answers = []
        for options in ((), ("--history", str(history))):
            capsys.readouterr()
            assert main(["diagnose", *words, *options, "--json"]) == 0
            answers.append(json.loads(capsys.readouterr().out)["findings"])
        assert [one for one in answers[1] if one["family"] != "history"] == answers[0]
        return {one["kind"]: one for one in answers[1] if one["family"] == "history"}

    slow = past(str(captures[-1]))
    assert sorted(slow) == ["late host", "slower"]
    assert (slow["late host"]["hosts"], slow["late host"]["ranks"]) == ([bad], [2])
    assert "in 5 of 5 earlier jobs" in slow["late host"]["sentence"]
    assert "and again in this one" in slow["late host"]["sentence"]
    assert "slower than the last 5 equal jobs: a round takes" in slow["slower"]["sentence"]
    assert sorted(past(str(captures[1]))) == ["not judged"], "one job alone says nothing"

    words = ["diagnose", str(captures[-1]), "--history", str(history), "--equal-jobs", "4"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    slower = next(one for one in found if one["kind"] == "slower")
    assert "slower than the last 4 equal jobs: a round takes" in slower["sentence"]
    assert slower["evidence"][0]["command"].endswith(f"{captures[-1]} --equal-jobs 4")


def test_jobs_with_other_sizes_are_not_equal_and_old_jobs_go(
    captures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_job_capture(tmp_path / "other", 9, 4.0, size=1 << 21, first="SendRecv")
    path = tmp_path / "history"
    text = said(capsys, "add", path, captures[0], captures[1], captures[1], other, "--keep", "2")
    assert "deleted 1 older job" in text
    jobs = answer(capsys, "list", path)["jobs"]
    assert [job["label"] for job in jobs] == ["other", "job1"]
    assert jobs[0]["shape"] != jobs[1]["shape"]
    assert answer(capsys, "diff", path)["equal_jobs"] == []
    links = History(path).rows("links", ("source", "destination", "slowness"))
    assert links
    (trend,) = answer(capsys, "trend", path, "--link", *links[0][1:3])["trends"]
    assert trend["points"][0]["values"][0] == links[0][3] == pytest.approx(1.0, rel=0.2)
    assert "1 job, " in said(capsys, "prune", path, "--keep", "1")
    assert "other" in said(capsys, "list", path)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["trend", "--host", "nobody"], "nothing of --host nobody. There is "),
        (["trend", "--module", "x"], "They have no modules"),
        (["trend", "--host", "a", "--comm", "dp"], "one thing, not --host and --comm"),
        (["diff", "--job", "nothing"], "no job nothing. The last are: "),
        (["prune"], "Give --keep N, --older-than AGE, or both"),
        (["prune", "--keep", "0"], "--keep 0 leaves no job"),
        (["list", "--host", "a"], "history list takes no --host. It belongs to history trend"),
        (["add"], "history add needs a capture"),
    ],
)
def test_mistakes_get_a_sentence(
    words: list[str], wanted: str, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wanted in said(capsys, words[0], history, *words[1:], code=2)
