"""Closed streams, names that are hardly names, numbers without measure, links."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.verb_runs import errors_of
from tests.support.writer import SyntheticSpec, synthetic


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "c"
    synthetic(path, SyntheticSpec(processes=2, operations=5))
    return path


def in_shell(redirection: str, *words: str | Path, **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ncclscope", *map(str, words)]
    return subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | variables,
    )  # fmt: skip


def test_closed_streams(capture: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.csv"
    runs = [
        in_shell(">&-", "ls", capture),
        in_shell(">&- 2>&- <&-", "export", capture, "-o", output),
        in_shell("2>&-", "ls", "/no/such/place"),
        in_shell("", "report", capture, PYTHONIOENCODING="ascii"),
    ]
    (_, closed), (_, _), (_, _), (text, error) = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [1, 0, 2, 0]
    assert closed == (
        "ncclscope: cannot write the output: Bad file descriptor. Write it to another place\n"
    )
    assert len(output.read_text().splitlines()) == 11
    assert "operations" in text
    assert not error


def test_names_that_are_hardly_names(capture: Path, tmp_path: Path) -> None:
    for name in ("\udcff.csv", "n" * 250 + ".csv", "new\nline.csv"):
        errors_of("export", capture, "-o", tmp_path / name, code=0)
        assert (tmp_path / name).is_file()
    (tmp_path / "\udcff").mkdir()
    assert "it is not UTF-8" in errors_of("export", capture, "-o", tmp_path / "\udcff/x.csv")
    assert not list((tmp_path / "\udcff").iterdir())
    assert "nothing to run" in errors_of("run", "--", "")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "Too many levels" in errors_of("report", tmp_path / "a", code=1)
    assert "cannot record into" in errors_of("run", "-o", tmp_path / "a/x", "--", "true", code=0)


def test_a_current_directory_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "directory was deleted" in errors_of("run", "-o", "c", "--", "true")
    errors_of("run", "-q", "-o", tmp_path / "c", "--", "true", code=0)


def test_numbers_without_measure(capture: Path) -> None:
    errors_of("report", capture, "--last", "9" * 400 + "d", code=0)
    errors_of("report", capture, "--until", "9999-12-31T23:59:59", code=0)
    assert "cannot understand" in errors_of("report", capture, "--since", "0001-01-01T00:00:00")
    assert "nothing lies within --last 0s" in errors_of("report", capture, "--last", "0s")
    for interval in ("nan", "inf", "1e300"):
        for verb in ("serve", "top"):
            assert "at most a day" in errors_of(verb, capture, "--interval", interval)
    assert "no address is given" in errors_of("serve", capture, "--host", "")


def test_prune_leaves_captures_that_are_only_linked_to(tmp_path: Path) -> None:
    synthetic(tmp_path / "archive" / "baseline", SyntheticSpec(processes=1, operations=1))
    synthetic(tmp_path / "captures" / "c", SyntheticSpec(processes=1, operations=1))
    (tmp_path / "captures" / "linked").symlink_to(tmp_path / "archive" / "baseline")
    errors_of("prune", tmp_path / "captures", "--keep", "0", code=0)
    assert not (tmp_path / "captures" / "c").exists()
    assert list((tmp_path / "archive" / "baseline").glob("*/meta"))


def test_prune_leaves_links_beside_other_files(tmp_path: Path) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=1, operations=1))
    (tmp_path / "c" / "train.py").write_text("mine")
    (tmp_path / "c" / "data").symlink_to("/tmp")
    errors_of("prune", tmp_path / "c", "--keep", "0", code=0)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"train.py", "data"}


def test_prune_leaves_what_a_newer_release_writes(tmp_path: Path) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=1, operations=1))
    (meta,) = (tmp_path / "c").glob("*/meta")
    live = meta.with_name("live")
    data = bytearray(meta.read_bytes())
    data[10:12] = (99).to_bytes(2, "little")  # the format's major version
    for path in (meta, live):
        path.write_bytes(data)
    errors_of("prune", tmp_path / "c", "--keep", "0", code=0)
    assert live.exists()
    os.utime(live, (0, 0))  # its job is over
    errors_of("prune", tmp_path / "c", "--keep", "0", code=0)
    assert not (tmp_path / "c").exists()


def test_serve_says_that_no_job_runs(capture: Path) -> None:
    assert "no job runs there" in errors_of("serve", capture, "--once", "--all-hosts", code=0)
