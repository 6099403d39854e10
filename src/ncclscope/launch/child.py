"""Runs the user's command: forwards signals, returns the exit code."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ncclscope.errors import NcclscopeError

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandNotStartedError(NcclscopeError):
    """The command does not exist or cannot be executed; exit codes are those of shells."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot run {command}: {error.strerror}", "Check the words after `--`")
        self.exit_code = 127 if isinstance(error, FileNotFoundError) else 126


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise an error, so that it can end its children."""

    def leave(number: int, _: object) -> None:
        raise NcclscopeError(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def exit_code_kept(code: int) -> Iterator[None]:
    """A signal ends this process with that exit code, at once. After the block signals do nothing:
    the process is about to end.
    """
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the command to its end and returns its exit code, 128 + n when signal n ended it."""
    waited_for = {signal.SIGCHLD, *_FORWARDED}
    # Where it is ignored, as some launchers leave it, nobody says that a child has ended, or how.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        try:
            child = os.posix_spawnp(
                command[0],
                list(command),
                environment,
                setsigmask=before,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            raise CommandNotStartedError(command[0], error) from None
        while True:
            info = signal.sigwaitinfo(waited_for)
            if info.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    break
            # A signal from kill(2). Signals from the terminal reach the child by themselves.
            elif info.si_code <= 0:
                os.kill(child, info.si_signo)
        while signal.sigtimedwait(_FORWARDED, 0):
            pass  # they were for the command, which has ended
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
