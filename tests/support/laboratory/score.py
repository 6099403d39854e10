"""Holds what ncclscope says of a capture against the truth, through public interfaces only.

Asked are `diagnose --json`, `status --json`, `report --json`, `whatif --json`, and the table
`members` of the Python API. Two of them have keys that may not exist yet; the smallest contract:

`report --json` has "waiting": {
    "total_ns", "structure_ns", "start_up_ns", "below_clock_error_ns", "unknown_ns",
    "origins": [{"kind", "rank" or "communicator", "waiting_ns", "times", "typical_ns",
                 "excess_ns", "on_path_ns"}, ...]}
with total_ns = sum of origins' waiting_ns + structure_ns + start_up_ns + below_clock_error_ns +
unknown_ns. `kind` is "host", "gpu", "launch", "data" or "transfer"; a rank is the job's; a
communicator has the name that other tables have. waiting_ns is what ranks waited because of the
origin, excess_ns its own excess, on_path_ns what of that is on the critical path.

`whatif CAPTURE --without rank 2 --json`, `--without comm NAME`, `--link 5-9 at median` print {"run_now_ns",
"run_then_ns", "step_now_ns", "step_then_ns", "error_ns"}.

What does not exist is None here, and counts neither for nor against.
"""

import contextlib
import io
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ncclscope
from ncclscope.cli import main
from tests.support.laboratory.truth import Origin, Truth

_LINK_FAMILIES = frozenset({"slow_link", "degradation", "intra_inter", "below_expected"})
_PROBLEMS = ("warning", "critical")
NEAR = 0.10  # how far an attributed share may be off
_ENOUGH_LOST = 0.02  # of the run: below, a what-if has nothing to show


@dataclass(frozen=True, slots=True)
class Score:
    """How one capture was judged. None: not asked, or not answered by this release."""

    kind: str
    seed: int
    ranks: int
    faults: int  # that have to be named
    named: int  # of these, exactly
    first: bool | None  # the first problem is a planted one
    false_alarms: tuple[str, ...]  # problems that nobody planted
    status_right: bool
    table_first: bool | None  # report's table of ranks begins with a planted one
    delay_share: float | None  # see Shares, for these five
    waiting_share: float | None
    path_share: float | None
    waiting_elsewhere: float | None
    conserved: bool | None
    whatif_errors: tuple[float, ...]  # of the run's time without each origin
    whatif_bars: tuple[float, ...]  # how far off these may be, as they say
    identity_error: float | None  # of the run's time with nothing changed
    said: tuple[str, ...]  # the problems' sentences
    failures: tuple[str, ...]  # what is wrong, in words

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def ask(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a verb."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return code, out.getvalue(), err.getvalue()


def _json(*words: str) -> tuple[int, dict[str, Any] | None]:
    code, out, _ = ask(*words)
    try:
        answer = json.loads(out)
    except ValueError:
        return code, None
    return code, answer if isinstance(answer, dict) else None


def communicator_members(capture: Path) -> dict[str, tuple[int, ...]]:
    """Ranks of the job by a communicator's name."""
    rows = ncclscope.open(str(capture)).table("members").fetchall()
    columns = list(ncclscope.open(str(capture)).table("members").columns)
    name, rank = columns.index("communicator_name"), columns.index("global_rank")
    members: dict[str, list[int]] = {}
    for row in rows:
        members.setdefault(row[name], []).append(row[rank])
    return {key: tuple(sorted(ranks)) for key, ranks in members.items()}


def names_origin(
    finding: dict[str, Any], origin: Origin, truth: Truth, members: dict[str, tuple[int, ...]]
) -> bool:
    """Whether a finding names this origin and no one else.

    A rank is named by itself, or together with other planted ranks (a whole host). A link is
    named by its two ends, or by communicators that use it.
    """
    ranks = set(finding.get("ranks", ()))
    if origin.kind != "transfer":
        planted = {r for one in truth.origins if one.kind != "transfer" for r in one.ranks}
        own = set(origin.ranks)
        return finding["family"] not in _LINK_FAMILIES and own <= ranks <= planted
    if ranks == set(origin.ranks):
        return True
    if finding["family"] not in _LINK_FAMILIES:
        return False
    affected = {tuple(sorted(one)) for one in origin.communicators}
    blamed = {members.get(name, ()) for name in finding.get("communicators", ())}
    return bool(blamed) and blamed <= affected


def _is_named(
    problems: list[dict[str, Any]], origin: Origin, truth: Truth,
    members: dict[str, tuple[int, ...]],
) -> bool:  # fmt: skip
    """By one finding, or, of several ranks, by several that name no one else."""
    if any(names_origin(finding, origin, truth, members) for finding in problems):
        return True
    parts = [
        set(one["ranks"])
        for one in problems
        if one["family"] not in _LINK_FAMILIES and one["ranks"]
    ]
    own = set(origin.ranks)
    named = set().union(*(ranks for ranks in parts if ranks <= own))
    return origin.kind != "transfer" and named == own


def _names_part(finding: dict[str, Any], truth: Truth, members: dict[str, tuple[int, ...]]) -> bool:
    """Whether a finding names planted faults, or some ranks of one, and no one else."""
    planted = {r for one in truth.origins if one.kind != "transfer" for r in one.ranks}
    ranks = set(finding.get("ranks", ()))
    if finding["family"] not in _LINK_FAMILIES and ranks and ranks <= planted:
        return True
    return any(names_origin(finding, one, truth, members) for one in truth.origins)


def may_be_said(family: str, named_ranks: Collection[int], truth: Truth) -> bool:
    """Whether a finding that names no planted fault is true all the same."""
    if family in truth.may_families:
        return True
    ranks = set(named_ranks)
    planted = {r for one in truth.origins if one.kind != "transfer" for r in one.ranks}
    allowed = set(truth.may_ranks) | planted
    late = family not in _LINK_FAMILIES
    if late and truth.uneven and not ranks:
        return True
    return late and bool(truth.may_ranks) and bool(ranks) and ranks <= allowed


@dataclass(frozen=True, slots=True)
class Shares:
    """How well the account of waiting agrees with what was planted; 1.0: it does."""

    delay: float | None = None  # own excess of the planted origins
    waiting: float | None = None  # waiting that is put on them
    path: float | None = None  # what of them is on the critical path
    elsewhere: float | None = None  # waiting put on other ranks and links, of all waiting
    conserved: bool | None = None  # sums are exact


def _share(value: float, low: float, high: float) -> float:
    """1.0 within the bounds, else how far the value is from the nearer one."""
    if value < low:
        return value / low
    return value / high if value > high else 1.0


def _waiting_shares(
    waiting: dict[str, Any], truth: Truth, members: dict[str, tuple[int, ...]]
) -> Shares:
    """Holds the origins of waiting against the planted ones.

    Of a planted delay, a part may be hidden, in a pipeline's bubble or behind other work: the
    excess, and what of it is on the critical path, is right from what the run lost to all that was
    planted. Waiting put on a fault is right
    from what the healthy twin does not have to all waiting, as noise hides behind a late rank.
    """
    own_ns = delay_ns = path_ns = other_ns = 0.0
    planted = {r for one in truth.origins if one.kind != "transfer" for r in one.ranks}
    affected = {tuple(sorted(m)) for one in truth.origins for m in one.communicators}
    for origin in waiting["origins"]:
        place = members.get(origin.get("communicator") or "", ())
        if origin.get("rank") in planted or (place and place in affected):
            own_ns += origin["waiting_ns"]
            delay_ns += origin.get("excess_ns") or 0
            path_ns += origin.get("on_path_ns") or 0
        else:
            other_ns += origin["waiting_ns"]
    kept = ("structure_ns", "start_up_ns", "below_clock_error_ns", "unknown_ns")
    parts = own_ns + other_ns + sum(waiting.get(key, 0) for key in kept)
    conserved = abs(parts - waiting["total_ns"]) <= 1e-6 * max(waiting["total_ns"], 1.0)
    elsewhere = other_ns / max(waiting["total_ns"], 1.0)
    lost_ns = truth.run_ns - truth.healthy_run_ns
    if not truth.origins or truth.origins[0].delay_ns == 0 or lost_ns < _ENOUGH_LOST * truth.run_ns:
        return Shares(elsewhere=elsewhere, conserved=conserved)
    planted_ns = sum(one.delay_ns for one in truth.origins)
    caused_ns = truth.waiting_ns - truth.healthy_waiting_ns
    whole_ns = max(truth.waiting_ns + truth.exchange_waiting_ns, 1.0)
    waited = _share(own_ns, caused_ns, whole_ns)
    return Shares(
        delay=_share(delay_ns, min(lost_ns, planted_ns), max(lost_ns, planted_ns)),
        waiting=waited if caused_ns > 0.05 * whole_ns else None,
        path=_share(path_ns, min(lost_ns, planted_ns), max(lost_ns, planted_ns)),
        elsewhere=elsewhere,
        conserved=conserved,
    )


def _without(origin: Origin, members: dict[str, tuple[int, ...]]) -> list[str]:
    """Options of `whatif` that take an origin away."""
    if origin.kind != "transfer":
        return [word for rank in origin.ranks for word in ("--without", "rank", str(rank))]
    if origin.exchanges:
        links = [f"{one}-{other}" for one, other in origin.links]
        return [word for link in links for word in ("--link", link, "at", "median")]
    affected = {tuple(sorted(one)) for one in origin.communicators}
    names = [name for name, ranks in members.items() if ranks in affected]
    return [word for name in names for word in ("--without", "comm", name)]


def _whatif(
    capture: Path, truth: Truth, members: dict[str, tuple[int, ...]]
) -> tuple[list[float], list[float], float | None]:
    """Errors of the predicted run without each origin, their error bars, and the error of the run
    as it is.
    """
    errors: list[float] = []
    bars: list[float] = []
    identity: float | None = None
    for origin in truth.origins:
        if origin.lost_share < _ENOUGH_LOST or not origin.run_without_ns:
            continue
        others = [one for one in truth.origins if one is not origin]
        if any(set(one.ranks) & set(origin.ranks) for one in others):
            continue  # a rank is taken out with all its faults
        words = _without(origin, members)
        code, answer = _json("whatif", str(capture), *words, "--json")
        if code == 0 and answer and answer.get("run_then_ns") is not None:
            errors.append(answer["run_then_ns"] / origin.run_without_ns - 1)
            bars.append(answer["error_ns"] / origin.run_without_ns)
            identity = answer["run_now_ns"] / truth.run_ns - 1
    return errors, bars, identity


def score_capture(capture: Path, truth: Truth, ask_whatif: bool = True) -> Score:
    """Asks every verb, and compares."""
    failures: list[str] = []
    _, diagnosis = _json("diagnose", "--json", str(capture))
    status_code, status = _json("status", "--json", str(capture))
    report_code, report = _json("report", "--json", str(capture))
    members = communicator_members(capture)
    findings = (diagnosis or {}).get("findings", [])
    if diagnosis is None or status is None or report is None:
        failures.append(f"no answer: status {status_code}, report {report_code}")
    problems = [one for one in findings if one["severity"] in _PROBLEMS]
    must = [one for one in truth.origins if one.must]
    named = [one for one in must if _is_named(problems, one, truth, members)]
    failures += [f"not named: {_words(one)}" for one in must if one not in named]
    true_ones = [_names_part(finding, truth, members) for finding in problems]
    alarms = [
        finding
        for finding, right in zip(problems, true_ones, strict=True)
        if not right and not may_be_said(finding["family"], finding.get("ranks", ()), truth)
    ]
    failures += [f"false alarm: {_said(one)}" for one in alarms]
    # What is late by design may come before the planted fault.
    judged = [
        one for one, finding in zip(true_ones, problems, strict=True) if one or finding in alarms
    ]
    first = (bool(judged) and judged[0]) if must else None
    if first is False and named:
        failures.append("a planted fault is named, but not first")
    status_right = _status_right(status_code, status, truth)
    if not status_right:
        wanted = truth.status
        failures.append(
            f"status: {_status_words(status_code, status)}; right: exit {wanted.exit_code}, "
            f"{' or '.join(wanted.verdicts)} {wanted.culprits}"
        )
    if not _hang_found(problems, truth):
        failures.append("diagnose does not begin with the hang and its culprits")
    if report and diagnosis:
        failures += _impossible(report, diagnosis, truth)
    for word in truth.never_said:
        if any(word in ask(verb, str(capture))[1] for verb in ("report", "status", "diagnose")):
            failures.append(f"says {word!r}")
    waiting = (report or {}).get("waiting")
    shares = Shares()
    if isinstance(waiting, dict) and "origins" in waiting:
        shares = _waiting_shares(waiting, truth, members)
        if not shares.conserved:
            failures.append("sums of waiting do not add up")
    errors, bars, identity = _whatif(capture, truth, members) if ask_whatif else ([], [], None)
    return Score(
        truth.kind, truth.seed, truth.ranks, len(must), len(named), first,
        tuple(_said(one) for one in alarms), status_right,
        _table_first(report or {}, truth), shares.delay,
        shares.waiting, shares.path, shares.elsewhere, shares.conserved, tuple(errors), tuple(bars),
        identity, tuple(_said(one) for one in problems), tuple(failures),
    )  # fmt: skip


def _table_first(report: dict[str, Any], truth: Truth) -> bool | None:
    """Whether the rank that made others wait most is a planted one, where others did wait."""
    planted = {r for one in truth.origins if one.must and one.kind != "transfer" for r in one.ranks}
    caused_ns = truth.waiting_ns - truth.healthy_waiting_ns
    rows = report.get("ranks") or []
    if not planted or not rows or caused_ns < 0.1 * truth.run_ns:
        return None
    return max(rows, key=lambda row: row.get("caused_wait_ns") or 0)["rank"] in planted


def _impossible(report: dict[str, Any], diagnosis: dict[str, Any], truth: Truth) -> list[str]:
    """What cannot be, whatever the job: shares above 1, waits longer than the run."""
    wrong = []
    for row in (report.get("total", {}), *report.get("communicators", ()), *report["operations"]):
        share = row.get("run_share")
        if share is not None and share > 1.0001:
            name = row.get("name") or row.get("communicator") or "total"
            wrong.append(f"run share of {name} is {share:.3f}")
    span_ns = report.get("span_ns") or 0
    for row in report.get("ranks") or ():
        caused_ns = row.get("caused_wait_ns") or 0
        if span_ns and caused_ns > 1.01 * span_ns * (truth.ranks - 1):
            wrong.append(f"rank {row['rank']} made others wait {caused_ns / 1e9:.2f} s")
    counts = [answer["completeness"] for answer in (report, diagnosis)]
    if any(counts[0][key] != counts[1][key] for key in ("calls", "operations")):
        wrong.append("report and diagnose count calls differently")
    processes = counts[0]["processes"]
    whole = processes["found"] == processes["expected"] or "data_quality" in truth.may_families
    if not whole:
        wrong.append(f"{processes['found']} of {processes['expected']} processes")
    return wrong


def _hang_found(problems: list[dict[str, Any]], truth: Truth) -> bool:
    """Whether diagnose has the hang that status has to have, and first."""
    if not truth.status.exit_code:
        return True
    return bool(problems) and (
        problems[0]["family"] in ("hang", "mismatch")
        and set(problems[0]["ranks"]) == set(truth.status.culprits)
    )


def _status_right(code: int, status: dict[str, Any] | None, truth: Truth) -> bool:
    if status is None or code != truth.status.exit_code:
        return False
    if not truth.status.exit_code:
        return not status["hung"]
    roots = [one for one in status["communicators"] if _hangs_by_itself(one)]
    verdicts = {one["verdict"] for one in roots}
    culprits = {rank for one in roots for rank in one["culprits"]}
    return bool(verdicts & set(truth.status.verdicts)) and culprits == set(truth.status.culprits)


def _hangs_by_itself(communicator: dict[str, Any]) -> bool:
    fine = communicator["verdict"] in ("ok", "waiting")
    return not fine and not communicator.get("follows_from")


def compare_exit_codes(first: Path, second: Path) -> tuple[int, int]:
    """Of `compare --gate` in both directions."""
    codes = [
        ask("compare", "--gate", str(a), str(b))[0] for a, b in ((first, second), (second, first))
    ]
    return codes[0], codes[1]


def _status_words(code: int, status: dict[str, Any] | None) -> str:
    rows = [one for one in (status or {}).get("communicators", []) if _hangs_by_itself(one)]
    said = {(one["verdict"], tuple(one["culprits"])) for one in rows}
    return f"exit {code}, {sorted(said)}"


def _words(origin: Origin) -> str:
    where = f"{'link' if origin.kind == 'transfer' else 'rank'} {origin.ranks}"
    return f"{origin.kind} {where}, {100 * origin.lost_share:.1f} % of the run"


def _said(finding: dict[str, Any]) -> str:
    return f"{finding['severity']} {finding['family']} ({finding['kind']}): {finding['sentence']}"
