"""Calls hooks: commands and webhooks. One thread does it, so that readings and scrapes never wait.

No shell is involved. What a job can choose (names of communicators, runs and hosts) reaches a
command as JSON on stdin and in environment variables, never as part of its command line. A
webhook's address may hold a secret: messages name its host only.
"""

import base64
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import IO

from ncclscope._version import __version__
from ncclscope.errors import UsageError
from ncclscope.humanize import printable
from ncclscope.live.job_events import HANG, KINDS, STRAGGLER, EventFinder, JobEvent
from ncclscope.live.job_follower import FollowedJob

_MOST_WAITING = 32  # events; a hook that hangs must not fill the memory
_COMMAND_S = 60.0
_WEBHOOK_S = 10.0
_TRIES = 3
_LONGEST_VARIABLE = 4096


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is run for events of one kind."""

    kind: str
    words: tuple[str, ...]

    def call(self, event: JobEvent) -> str:
        """Runs the command; returns what went wrong, or ""."""
        facts = event.as_json()
        variables = {
            "EVENT": event.kind,
            "RUN": event.run,
            "CAPTURE": event.capture,
            "COMMUNICATOR": event.communicator,
            "RANKS": ",".join(map(str, event.ranks)),
            "HOSTS": ",".join(event.hosts),
            "SENTENCE": event.sentence,
        }
        own = {
            f"NCCLSCOPE_HOOK_{name}": printable(value)[:_LONGEST_VARIABLE]
            for name, value in variables.items()
        }
        try:
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                env={**os.environ, **own},
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot run {self.words[0]}: {error.strerror}"
        try:
            process.communicate(json.dumps(facts).encode(), timeout=_COMMAND_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"{self.words[0]} took longer than {_COMMAND_S:.0f} s and was killed"
        code = process.returncode
        return f"{self.words[0]} ended with exit code {code}" if code else ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would carry the event to an address that nobody named."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        """No request."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that gets a POST for each event."""

    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """The address without what may be secret: user, password, path and query."""
        parts = urllib.parse.urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"

    def call(self, event: JobEvent) -> str:
        """Sends the event; returns what went wrong, or ""."""
        parts = urllib.parse.urlsplit(self.url)
        headers = {"Content-Type": "application/json", "User-Agent": f"ncclscope/{__version__}"}
        if parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            login = f"{user}:{urllib.parse.unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        body = json.dumps(event.as_json()).encode()
        request = urllib.request.Request(address, body, headers, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=_WEBHOOK_S):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return f"{self.name} answered with {error.code}"
        except urllib.error.URLError as error:
            cause = getattr(error.reason, "strerror", "") or "no answer"  # never the address
            return f"cannot reach {self.name}: {cause}"
        except (OSError, ValueError) as error:
            return f"cannot reach {self.name}: {type(error).__name__}"


Hook = Command | Webhook


class Hooks:
    """Looks at every reading, and calls hooks in a thread of its own."""

    def __init__(self, hooks: Sequence[Hook], finder: EventFinder, retry_s: float = 2.0) -> None:
        self._hooks, self._finder, self._retry_s = tuple(hooks), finder, retry_s
        self._events: queue.Queue[JobEvent] = queue.Queue(_MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hooks", daemon=True)

    def start(self) -> None:
        """Calls hooks from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Gives up what waits. A command that runs is left alone."""
        self._stopping.set()

    def look(self, jobs: Sequence[FollowedJob], now: float) -> None:
        """Queues the events of a reading."""
        for event in self._finder.find(jobs, now):
            try:
                self._events.put_nowait(event)
            except queue.Full:
                _say(f"{event.kind} in {event.run}: hooks are too slow, and are not called for it")

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                event = self._events.get(timeout=0.2)
            except queue.Empty:
                continue
            _say(f"{event.kind} in {event.run}: {event.sentence}")
            for hook in self._hooks:
                if isinstance(hook, Webhook) or hook.kind == event.kind:
                    self._call(hook, event)

    def _call(self, hook: Hook, event: JobEvent) -> None:
        """A webhook is tried again; a command may have done half of its work."""
        tries = _TRIES if isinstance(hook, Webhook) else 1
        for number in range(tries):
            failure = hook.call(event)
            if not failure:
                return
            _say(failure)
            if number + 1 < tries and self._stopping.wait(self._retry_s * 2**number):
                return


def _say(text: str) -> None:
    print(f"ncclscope: {printable(text)}", file=sys.stderr, flush=True)


# ---- from options ----
def command_of(kind: str, text: str) -> Command:
    """The command of --on-hang or --on-straggler, checked. Its words are split as a shell would."""
    try:
        words = shlex.split(text)
        unquoted = shlex.shlex(text, punctuation_chars=True)  # what is quoted keeps its quotes
        operators = [word for word in unquoted if set(word) <= set("();<>|&")]
    except ValueError as error:
        message = f"cannot understand --on-{kind} {text}: {error}"
        raise UsageError(message, "Quote it as in a shell") from None
    if operators:
        why = f"no shell reads it, so {operators[0]} means nothing"
        message = f"cannot run --on-{kind} {text}: {why}"
        raise UsageError(message, f"Write a script, or sh -c {shlex.quote(text)}")
    if not words or shutil.which(words[0]) is None:
        message = f"cannot run --on-{kind} {text}: no such program"
        raise UsageError(message, "Name an executable file; a pipeline needs a script of its own")
    return Command(kind, tuple(words))


def webhook_of(text: str) -> Webhook:
    """The webhook of --webhook, checked. `@FILE` has the address in a file, which `ps` does not
    show.
    """
    url = text
    if text.startswith("@"):
        try:
            url = Path(text[1:]).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot read the address of the webhook from {text[1:]}"
            raise UsageError(f"{message}: {getattr(error, 'strerror', 'it is no text')}") from None
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in url):
        message = "cannot use --webhook: that is no http or https address"  # it may be a secret
        raise UsageError(message, "Give https://HOST/PATH, or @FILE with it")
    return Webhook(url)


def hooks_of(
    on_hang: Sequence[str],
    on_straggler: Sequence[str],
    webhooks: Sequence[str],
    straggler_s: float,
    pause_s: float,
) -> Hooks | None:
    """The hooks that options ask for; None if there are none."""
    hooks: list[Hook] = [command_of(HANG, text) for text in on_hang]
    hooks += [command_of(STRAGGLER, text) for text in on_straggler]
    hooks += [webhook_of(text) for text in webhooks]
    if not hooks:
        return None
    kinds = KINDS if webhooks else tuple({h.kind for h in hooks if isinstance(h, Command)})
    return Hooks(hooks, EventFinder(kinds, straggler_s, pause_s))
