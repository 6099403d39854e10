"""Hooks: when they are called, and what real commands and a real HTTP receiver get."""

import http.server
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ncclscope.diagnose.hang.verdict import NEVER_CALLED, Status, Verdict
from ncclscope.errors import UsageError
from ncclscope.live.hooks import Command, Hooks, Webhook, command_of, hooks_of, webhook_of
from ncclscope.live.job_events import HANG, STRAGGLER, EventFinder, JobEvent
from ncclscope.live.job_follower import FollowedJob
from tests.support.waiting import eventually

EVENT = JobEvent(
    HANG, "job", "/captures/job", "tp$(touch owned)`id`\n;'\"", (2, 5), ("node7",), "rank 2 is late"
)
# Writes what it got into the file that its argument names.
RECEIVER = (
    "import json, os, sys; "
    "facts = {k: v for k, v in os.environ.items() if k.startswith('NCCLSCOPE_HOOK_')}; "
    "open(sys.argv[1], 'w').write(json.dumps([json.load(sys.stdin), facts, sys.argv[2:]]))"
)


def command(out: Path, *words: str) -> Command:
    return Command(HANG, (sys.executable, "-c", RECEIVER, str(out), *words))


class Receiver(http.server.ThreadingHTTPServer):
    """Answers with the codes that a test sets, and keeps what it got."""

    codes: list[int]
    requests: list[tuple[str, dict[str, str], Any]]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        code = self.server.codes.pop(0) if self.server.codes else 200
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keeps stderr for what hooks say."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver(("127.0.0.1", 0), Handler)
    server.codes, server.requests = [], []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def address(receiver: Receiver, rest: str = "/secret-token", login: str = "") -> str:
    return f"http://{login}127.0.0.1:{receiver.server_address[1]}{rest}"


def job(hung: bool, capture: str = "/captures/job") -> FollowedJob:
    """A job with one communicator, in which rank 2 never called."""
    verdict = Verdict("world", 1, 4, NEVER_CALLED, hung, "AllReduce", 7, 1024, "float32", (2,))
    status = Status((verdict,), 4, 4, 0, 4, 0, post_mortem=False)
    return FollowedJob(Path(capture), "node0", "job", status=status)


# ---- when ----
def test_a_hang_is_reported_once_and_again_after_it_was_over() -> None:
    finder = EventFinder((HANG,), pause_s=100)
    assert [event.ranks for event in finder.find([job(True)], 0.0)] == [(2,)]
    assert finder.find([job(True)], 500.0) == []
    assert finder.find([job(False)], 501.0) == []
    assert len(finder.find([job(True)], 502.0)) == 1


def test_a_job_that_hangs_again_and_again_is_reported_once_in_a_pause() -> None:
    finder = EventFinder((HANG,), pause_s=100)
    times = [t for t in range(300) if finder.find([job(t % 2 == 0)], float(t))]
    assert times == [0, 100, 200]


def test_jobs_do_not_silence_each_other() -> None:
    finder = EventFinder((HANG,), pause_s=100)
    assert len(finder.find([job(True), job(True, "/captures/other")], 0.0)) == 2


def test_a_dead_job_is_no_hang() -> None:
    dead = job(True)
    assert dead.status
    dead.status = replace(dead.status, post_mortem=True)
    assert EventFinder((HANG,)).find([dead], 0.0) == []


# ---- commands ----
def test_a_command_gets_facts_as_json_and_variables_and_no_shell_sees_them(tmp_path: Path) -> None:
    out = tmp_path / "got"
    assert command(out, "$HOME", "a b").call(EVENT) == ""
    facts, variables, words = json.loads(out.read_text())
    assert words == ["$HOME", "a b"]
    assert facts["communicator"] == EVENT.communicator
    assert facts["event"] == "hang"
    assert facts["ranks"] == [2, 5]
    assert variables["NCCLSCOPE_HOOK_RANKS"] == "2,5"
    assert "$(touch owned)" in variables["NCCLSCOPE_HOOK_COMMUNICATOR"]
    assert "\n" not in variables["NCCLSCOPE_HOOK_COMMUNICATOR"]
    assert not Path("owned").exists()


def test_a_command_that_fails_or_takes_too_long_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Command(HANG, ("false",)).call(EVENT) == "false ended with exit code 1"
    assert "cannot run" in Command(HANG, (str(tmp_path),)).call(EVENT)
    monkeypatch.setattr("ncclscope.live.hooks._COMMAND_S", 0.2)
    assert "was killed" in Command(HANG, ("sleep", "600")).call(EVENT)


def test_a_command_that_does_not_read_is_no_error() -> None:
    assert Command(HANG, ("true",)).call(replace(EVENT, sentence="x" * 1_000_000)) == ""


# ---- webhooks ----
def test_a_webhook_gets_the_facts_and_a_login(receiver: Receiver) -> None:
    assert Webhook(address(receiver, login="user:p%40ss@")).call(EVENT) == ""
    ((path, headers, body),) = receiver.requests
    assert (path, headers["Content-Type"]) == ("/secret-token", "application/json")
    assert headers["Authorization"] == "Basic dXNlcjpwQHNz"
    assert body["text"] == "ncclscope: hang in job: rank 2 is late"


def test_a_webhook_is_tried_again_and_its_address_is_not_printed(
    receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.codes += [500, 302]
    hooks = Hooks([Webhook(address(receiver))], EventFinder((HANG,)), retry_s=0.01)
    hooks.start()
    hooks.look([job(True)], 0.0)
    eventually(lambda: len(receiver.requests) == 3)
    hooks.stop()
    assert {path for path, _, _ in receiver.requests} == {"/secret-token"}, "no redirect"
    said = capfd.readouterr().err
    assert "answered with 500" in said
    assert "answered with 302" in said
    assert "secret-token" not in said
    assert "secret" not in repr(Webhook("http://h/secret"))


def test_a_webhook_that_nobody_answers_names_the_host_only() -> None:
    failure = Webhook("http://user:secret@127.0.0.1:9/token").call(EVENT)
    assert failure == "cannot reach http://127.0.0.1:9: Connection refused"


def test_readings_do_not_wait_for_a_hook_that_hangs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    hooks = Hooks([Command(HANG, ("cat", str(fifo)))], EventFinder((HANG,), pause_s=0))
    hooks.start()
    for number in range(100):
        hooks.look([job(True, f"/captures/{number}")], float(number))
    assert "hooks are too slow" in capfd.readouterr().err
    hooks.stop()
    fifo.write_text("")  # lets cat end


# ---- options ----
def test_options_are_checked_before_anything_runs(tmp_path: Path) -> None:
    assert command_of(HANG, "echo 'a b' '|' cat").words == ("echo", "a b", "|", "cat")
    assert command_of(HANG, "sh -c 'cat > a; cat a | wc'").words[2] == "cat > a; cat a | wc"
    for text in ("cat >> log", "cat | wc", "cat; ls", "cat & ls", "curl http://a/?b=1&c=2"):
        with pytest.raises(UsageError, match="no shell reads it") as refused:
            command_of(HANG, text)
        assert "sh -c" in str(refused.value)
    assert hooks_of([], [], [], 30, 600) is None
    for text in ("", "no-such-program --x", "'"):
        with pytest.raises(UsageError):
            command_of(STRAGGLER, text)
    file = tmp_path / "address"
    file.write_text("https://hooks.example/T0/secret\n")
    assert webhook_of(f"@{file}").url == "https://hooks.example/T0/secret"
    for text in ("ftp://x/secret", "http://", "secret", "http://a:b:c/secret", "http://h/a secret"):
        with pytest.raises(UsageError) as error:
            webhook_of(text)
        assert "secret" not in str(error.value)
