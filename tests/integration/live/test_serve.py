"""`ncclscope serve` beside a running simulated job."""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ncclscope
from ncclscope.live import job_follower
from ncclscope.simulation.scenario import Call, Communicators, Scenario
from tests.support.metrics_server import fetch, serving
from tests.support.player import ncclscope as command
from tests.support.server_faults import (
    EVERY,
    Fault,
    Supervisor,
    attempt,
    build_supervisor,
    may_supervise,
    metrics_server,
)
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

JOB = Scenario(
    name="served",
    ranks=4,
    steps=100_000,
    compute_ms=20,
    communicators=(Communicators("world"), Communicators('tp"quoted"\\<b>', 2)),
    calls=(
        Call("world", "AllReduce", 1 << 20),
        Call("world", "AllReduce", 1 << 16),
        Call("world", "AllGather", 1 << 18, "bfloat16"),
    ),
)

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers(text: str) -> Numbers:
    """Values by name and labels, but run and host."""
    return {
        (s.name, tuple(sorted((k, v) for k, v in s.labels.items() if k not in ("run", "host")))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }  # fmt: skip


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("serve") / "capture"
    with running(JOB, path, "--mode", "profile"):
        eventually(lambda: len(list(path.glob("*/tally"))) == 4)
        yield path


def calls_of(found: Numbers) -> dict[str, float]:
    """Calls by rank."""
    sums: dict[str, float] = {}
    for (name, labels), value in found.items():
        if name == "ncclscope_calls_total":
            rank = dict(labels)["rank"]
            sums[rank] = sums.get(rank, 0) + value
    return sums


def test_a_running_job(capture: Path) -> None:
    with serving(capture) as url:
        _, kind, text = fetch(f"{url}/metrics")
        assert kind.startswith("text/plain; version=0.0.4")
        first = numbers(text)
        assert set(calls_of(first)) == {"0", "1", "2", "3"}

        def moved() -> Numbers | None:
            now = numbers(fetch(f"{url}/metrics")[2])
            before = calls_of(first)
            busy = any(name == "ncclscope_busbw_bytes_per_second" for name, _ in now)
            stepped = ("ncclscope_steps_per_second", ()) in now
            grown = all(count > before[rank] for rank, count in calls_of(now).items())
            return now if grown and busy and stepped else None

        now = eventually(moved)
        assert now["ncclscope_hung", ()] == 0
        assert now["ncclscope_process_up", (("rank", "3"),)] == 1
        assert now["ncclscope_expected_processes", ()] == 4
        # One step makes three calls.
        assert 1 < now["ncclscope_steps_per_second", ()] < 250
        assert fetch(f"{url}/healthz")[:1] == (200,)
        status = json.loads(fetch(f"{url}/status.json")[2])
        assert [run["hung"] for run in status.values()] == [False]
        assert fetch(f"{url}/metrics", Accept="application/openmetrics-text;version=1.0.0")[
            2
        ].endswith("# EOF\n")


def test_failing_system_calls_do_not_stop_it(capture: Path, tmp_path: Path) -> None:
    """A slice of benchmarks/server_faults.py."""
    supervisor, program = Supervisor(tmp_path / "control"), build_supervisor(tmp_path)
    if not may_supervise(program, tmp_path / "tried"):
        pytest.skip("*** no seccomp notification here: FAILING SYSTEM CALLS ARE NOT TESTED ***")
    server = metrics_server(capture, supervisor, program, tmp_path / "log")
    server.start()
    try:
        for call, error in (("accept4", "EMFILE"), ("openat", "EMFILE"), ("newfstatat", "EIO")):
            wrong, failed = attempt(server, Fault(call, error, times=EVERY))
            assert not wrong
            assert failed
    finally:
        code = server.stop()
    assert code == 0
    assert b"Traceback" not in server.errors()


def test_hostile_names_are_escaped(capture: Path) -> None:
    printed = command("serve", capture, "--once")
    assert printed.returncode == 0, printed.stderr
    names = {dict(labels).get("communicator", "") for _, labels in numbers(printed.stdout)}
    assert any(name.startswith('tp"quoted"\\<b>') for name in names), names


def test_all_jobs_of_this_user_are_found(capture: Path) -> None:
    printed = command("serve", "--once")
    assert f'capture="{capture}"' in printed.stdout


def test_jobs_without_shared_memory_are_found(capture: Path, tmp_path: Path) -> None:
    """As in a container with little of it: by the files that processes have open."""
    assert capture in job_follower.captures_with_open_files()
    folder = next(capture.glob("*/live")).parent
    for number, target in enumerate((folder / "live", "/", "/live", "/no/such/live", "socket:[7]")):
        files = tmp_path / "proc" / str(number) / "fd"
        files.mkdir(parents=True)
        (files / "5").symlink_to(target)
    assert job_follower.captures_with_open_files(tmp_path / "proc") == {capture}


def test_counts_are_those_of_the_capture(tmp_path: Path) -> None:
    """Killed in the middle and looked at by both: what was counted last is in the capture."""
    capture = tmp_path / "capture"
    with running(JOB, capture, "--mode", "trace"):
        eventually(lambda: len(list(capture.glob("*/tally"))) == 4)
        with serving(capture) as url:
            before = eventually(lambda: sum(calls_of(numbers(fetch(f"{url}/metrics")[2])).values()))
    opened = ncclscope.open(capture)
    after = opened.completeness().calls
    assert 0 < before <= after


def test_nothing_but_its_paths(capture: Path) -> None:
    with serving(capture) as url:
        for path in (
            "/",
            "/metrics/",
            "/../etc/passwd",
            "/metrics?x=1",
            "/metrics%2f",
            "/" + "a" * 9000,
        ):
            assert fetch(url + path)[0] in (404, 414), path
        assert fetch(f"{url}/metrics", Host="evil.example")[0] == 403
        request = urllib.request.Request(f"{url}/metrics", data=b"x" * 100)  # POST
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == 405
        refused.value.close()


def test_stuck_clients_do_not_stop_it(capture: Path) -> None:
    with serving(capture) as url:
        host, port = url.removeprefix("http://").split(":")
        stuck = [socket.create_connection((host, int(port))) for _ in range(20)]
        for one in stuck:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")  # and never more
        assert fetch(f"{url}/metrics")[0] == 200
        given_up, _, _ = select.select(stuck, [], [], 0)
        assert not given_up, "the answer came while all of them were held"
        for one in stuck:
            one.close()


def test_killed_ranks_are_dead_not_frozen(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    with running(JOB, capture, "--mode", "profile"):
        eventually(lambda: len(list(capture.glob("*/tally"))) == 4)
        with serving(capture) as url:
            found = numbers(fetch(f"{url}/metrics")[2])
            pids = {
                dict(labels)["rank"]: int(dict(labels)["pid"])
                for name, labels in found
                if name == "ncclscope_rank_info"
            }
            os.kill(pids["2"], signal.SIGKILL)
            died = ("ncclscope_process_up", (("rank", "2"),))
            now = eventually(
                lambda: (n := numbers(fetch(f"{url}/metrics")[2])).get(died) == 0 and n, 30
            )
            assert isinstance(now, dict)
            of_the_dead = [name for name, labels in now if dict(labels).get("rank") == "2"]
            assert of_the_dead == ["ncclscope_process_up"]


def test_textfiles_are_whole_and_vanish(tmp_path: Path, capture: Path) -> None:
    target = tmp_path / "textfiles"
    target.mkdir()
    words = [sys.executable, "-m", "ncclscope", "serve", str(capture), "--textfile", str(target)]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    (path,) = eventually(lambda: list(target.glob("*.prom")))
    assert set(calls_of(numbers(path.read_text()))) == {"0", "1", "2", "3"}
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=60)
    assert server.returncode == 0
    assert list(target.iterdir()) == []


@contextmanager
def writing(target: Path, *words: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """Files instead of a server."""
    command = [sys.executable, "-m", "ncclscope", "serve", "--textfile", str(target)]
    server = subprocess.Popen([*command, *map(str, words)], stderr=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def test_a_textfile_goes_with_its_job_and_so_do_those_of_a_killed_serve(tmp_path: Path) -> None:
    target, capture = tmp_path / "textfiles", tmp_path / "capture"
    target.mkdir()
    abandoned, of_another = target / "ncclscope-9.prom", target / "ncclscope-8.prom"
    foreign = target / "other.prom"
    for path, age_s in ((abandoned, 3600), (of_another, 0), (foreign, 3600)):
        path.write_text("ncclscope_hung 0\n")
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    capture.mkdir()
    with writing(target, capture) as server:
        assert server.stderr
        assert "writing" in server.stderr.readline()  # before the job, which may be short
        with running(Scenario(ranks=2, steps=150, compute_ms=20), capture) as job:
            eventually(lambda: (target / "ncclscope-capture.prom").exists())
            assert {path.name for path in target.glob("*.prom")} == {
                "ncclscope-capture.prom", "ncclscope-8.prom", "other.prom",
            }  # fmt: skip
            assert job.wait(timeout=60) == 0
            eventually(lambda: not (target / "ncclscope-capture.prom").exists())
    assert sorted(path.name for path in target.iterdir()) == ["ncclscope-8.prom", "other.prom"]


def test_textfiles_on_a_full_disk(tmp_path: Path, capture: Path) -> None:
    target = tmp_path / "textfiles"
    target.mkdir()
    # A directory in the place of the file: as little can be written.
    (target / "ncclscope-capture.prom").mkdir()
    with writing(target, capture) as server:
        assert server.stderr
        server.stderr.readline()
        assert "cannot write there: Is a directory. It goes on" in server.stderr.readline()
        (target / "ncclscope-capture.prom").rmdir()
        assert "it works again" in server.stderr.readline()
        assert (target / "ncclscope-capture.prom").exists()
    assert server.returncode == 0


AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_captures_of_others_are_left_out_and_counted(capture: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        private = Path(name, "private")
        private.mkdir(mode=0o700)

        def as_nobody(*words: str | Path) -> "subprocess.CompletedProcess[str]":
            call = [*AS_NOBODY, sys.executable, "-m", "ncclscope", *map(str, words)]
            return subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)

        found = as_nobody("serve", "--once", name)
        if "No module named" in found.stderr:
            pytest.skip("this checkout is private, too")
        assert found.returncode == 0, found.stderr
        assert f"{private} cannot be read and is left out" in found.stderr
        assert numbers(found.stdout)["ncclscope_unreadable_captures", ()] == 1
        assert as_nobody("top", "--once", f"{name}/*").stdout.strip() == "no running job"
        assert as_nobody("ls", name).returncode == 0
        for verb in ("serve", "top", "status", "report"):
            refused = as_nobody(verb, private)
            assert refused.returncode == 1, (verb, refused.stderr)
            assert f"cannot open {private}" in refused.stderr
            assert "Permission denied. Captures are private" in refused.stderr
            assert "Traceback" not in refused.stderr


def test_a_file_system_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read last must not look like now."""
    capture = tmp_path / "capture"
    with running(Scenario(ranks=2, steps=100_000), capture):
        eventually(lambda: len(list(capture.glob("*/tally"))) == 2)
        follower = job_follower.JobFollower((str(capture),), all_hosts=True)
        follower.read()
        assert len(follower.jobs) == 1

        def stale(_: Path) -> list[Path]:
            raise OSError(errno.ESTALE, "Stale file handle")

        with monkeypatch.context() as patched:
            patched.setattr(job_follower, "process_folders", stale)
            follower.read()
            assert follower.jobs == {}
            assert capture in follower.unreadable
        follower.read()
        assert len(follower.jobs) == 1
        assert follower.unreadable == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/no/such/place"], "cannot follow /no/such/place: no such directory"),
        (["--textfile", "/no/such/place"], "no such directory"),
        (["--interval", "0"], "--interval must be at least"),
        (["--series", "3"], "--series must be at least"),
        (["--port", "99999"], "cannot listen on 127.0.0.1:99999"),
        (["--host", "256.1.1.1"], "cannot listen on 256.1.1.1"),
    ],
)
def test_mistakes_are_sentences(words: list[str], said: str) -> None:
    printed = command("serve", *words)
    assert printed.returncode == 2
    assert said in printed.stderr
    assert "Traceback" not in printed.stderr


def test_inspectors_names(capture: Path) -> None:
    with serving(capture, "--inspector-names") as url:

        def there() -> Numbers | None:
            """All numbers, once operations of both functions were timed."""
            now = numbers(fetch(f"{url}/metrics")[2])
            functions = {
                dict(labels)["collective"]
                for name, labels in now
                if name.startswith("nccl_collective_exec")
            }
            return now if functions == {"AllReduce", "AllGather"} else None

        now = eventually(there)
    times = {key: v for (name, key), v in now.items() if name.startswith("nccl_collective_exec")}
    for labels, microseconds in times.items():
        known = dict(labels)
        assert known["gpu"] in {"GPU0", "GPU1", "GPU2", "GPU3"}
        assert (known["n_nodes"], known["nranks"], known["comm_name"]) == ("1", "4", "world")
        size = {"1-2MB": 1 << 20, "64-65KB": 1 << 16}[known["message_size"]]
        share = 4 if known["collective"] == "AllGather" else 1
        assert now["nccl_algorithm_bandwidth_gbs", labels] == pytest.approx(
            size * share / microseconds / 1e3
        )
