"""`serve`, `timeline` and `top` of which system calls fail while they run: no traceback, no hang, and
the next request is answered.
"""

import errno
import mmap
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import C_SOURCES

EVERY = 0xFFFFFFFF  # times of a fault: all calls from the first on
_CONTROL = struct.Struct("<IiiIIIIi")  # struct control in failing_system_calls.c, up to `calls`
_NUMBERS = 512
_ANSWER_S = 120.0  # far longer than an answer takes on a busy machine
_WHILE_FAILING_S = 0.3  # how long a client waits while calls fail
_FILE_ERRORS = ("EACCES", "EIO", "ESTALE", "ENOMEM", "EINTR")
# Errors that the system may give, or a sandbox's filter. "0": nothing is moved.
ERRORS: dict[str, tuple[str, ...]] = {
    "accept4": ("ECONNABORTED", "EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EPERM", "EINTR"),
    "access": ("EACCES", "EIO"),
    "clone": ("EAGAIN", "ENOMEM", "EPERM"),
    "clone3": ("EAGAIN", "ENOMEM", "EPERM", "ENOSYS"),
    "close": ("EIO", "EINTR"),
    "connect": ("ECONNREFUSED", "EACCES"),
    "dup": ("EMFILE",),
    "epoll_ctl": ("ENOMEM", "ENOSPC"),
    "epoll_pwait": ("EINTR",),
    "epoll_wait": ("EINTR",),
    "faccessat": ("EACCES", "EIO"),
    "faccessat2": ("EACCES", "EIO"),
    "fallocate": ("ENOSPC", "EIO"),
    "fcntl": ("EAGAIN", "ENOLCK"),
    "fdatasync": ("EIO", "ENOSPC"),
    "flock": ("EINTR", "ENOLCK"),
    "fstat": _FILE_ERRORS,
    "fsync": ("EIO", "ENOSPC"),
    "ftruncate": ("EIO", "ENOSPC"),
    "getdents64": ("EIO", "ESTALE", "ENOENT", "0"),
    "getpeername": ("ENOTCONN", "ENOBUFS"),
    "getrandom": ("ENOSYS", "EINTR"),
    "getrlimit": ("EPERM",),
    "getsockname": ("ENOBUFS",),
    "getsockopt": ("ENOBUFS",),
    "ioctl": ("ENOTTY", "EIO"),
    "kill": ("EPERM", "ESRCH"),
    "lseek": ("EIO", "ESTALE"),
    "lstat": (*_FILE_ERRORS, "ENOENT"),
    "madvise": ("ENOMEM", "EAGAIN", "EPERM"),
    "mkdir": ("EACCES", "ENOSPC", "EROFS", "EEXIST"),
    "mkdirat": ("EACCES", "ENOSPC", "EROFS", "EEXIST"),
    "mmap": ("ENOMEM", "EAGAIN", "ENODEV", "EACCES"),
    "mprotect": ("ENOMEM", "EACCES"),
    "mremap": ("ENOMEM",),
    "munmap": ("ENOMEM",),
    "newfstatat": (*_FILE_ERRORS, "ENOENT"),
    "openat": (*_FILE_ERRORS, "EMFILE", "ENFILE", "ENOENT"),
    "open": (*_FILE_ERRORS, "EMFILE", "ENFILE", "ENOENT"),
    "pipe2": ("EMFILE", "ENFILE"),
    "poll": ("EINTR", "ENOMEM"),
    "ppoll": ("EINTR", "ENOMEM"),
    "pread64": ("EIO", "ESTALE", "EINTR", "0"),
    "prlimit64": ("EPERM",),
    "pselect6": ("EINTR", "ENOMEM"),
    "pwrite64": ("ENOSPC", "EIO", "EDQUOT", "EINTR"),
    "read": ("EIO", "ESTALE", "EINTR", "0"),
    "readlink": ("EACCES", "EIO", "ENOENT"),
    "readlinkat": ("EACCES", "EIO", "ENOENT"),
    "recvfrom": ("ECONNRESET", "ETIMEDOUT", "ENOMEM", "EINTR", "0"),
    "rename": ("ENOSPC", "EIO", "EACCES"),
    "renameat": ("ENOSPC", "EIO", "EACCES"),
    "sched_getaffinity": ("EPERM",),
    "select": ("EINTR", "ENOMEM"),
    "sendmsg": ("ECONNRESET", "EPIPE", "ENOBUFS", "ENOMEM", "EINTR"),
    "sendto": ("ECONNRESET", "EPIPE", "ENOBUFS", "ENOMEM", "EINTR"),
    "setsockopt": ("ENOBUFS", "EPERM"),
    "shutdown": ("ENOTCONN", "ENOBUFS"),
    "socket": ("EMFILE", "ENFILE", "ENOBUFS", "EPERM"),
    "stat": (*_FILE_ERRORS, "ENOENT"),
    "statx": (*_FILE_ERRORS, "ENOENT"),
    "sysinfo": ("EPERM",),
    "uname": ("EPERM",),
    "unlink": ("EACCES", "EIO", "EROFS"),
    "unlinkat": ("EACCES", "EIO", "EROFS"),
    "write": ("ENOSPC", "EIO", "EINTR"),
}


def build_supervisor(directory: Path) -> Path:
    """The program that makes system calls fail."""
    program = directory / "failing_system_calls"
    source = C_SOURCES / "failing_system_calls.c"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", program, source], check=True)
    return program


def system_call_numbers() -> dict[str, int]:
    """Numbers of system calls on this machine, by name."""
    command = ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", os.devnull]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    defined = dict(re.findall(r"#define (__NR\w+) (\w+)\n", text))
    # aarch64 defines fstat and its like by a second name, which has the number.
    numbers = {name: defined.get(value, value) for name, value in defined.items()}
    return {
        name.removeprefix("__NR_"): int(number)
        for name, number in numbers.items()
        if name.startswith("__NR_") and number.isdecimal()
    }


@dataclass(frozen=True, slots=True)
class Fault:
    """Which calls fail how."""

    call: str
    error: str
    first: int = 1
    times: int = 1


class Supervisor:
    """Says what fails, through the file that the supervising program reads."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._numbers = system_call_numbers()
        self._names = {number: name for name, number in self._numbers.items()}

    @contextmanager
    def failing(self, fault: Fault | None) -> Iterator[None]:
        """Calls are counted, and those of the fault fail."""
        number = self._numbers[fault.call] if fault else -1
        listener = _CONTROL.unpack_from(self._memory)[7]
        self._memory[_CONTROL.size :] = bytes(mmap.PAGESIZE - _CONTROL.size)
        error = getattr(errno, fault.error, 0) if fault else 0
        first, times = (fault.first, fault.times) if fault else (1, 0)
        _CONTROL.pack_into(self._memory, 0, 0, number, error, first, times, 0, 0, listener)
        self._memory[0] = 1
        yield
        self._memory[0] = 0

    @property
    def failed(self) -> int:
        """Calls that failed since the last fault was set."""
        return int(_CONTROL.unpack_from(self._memory)[6])

    @property
    def calls(self) -> dict[str, int]:
        """Calls that were made, by name."""
        counts = struct.unpack_from(f"<{_NUMBERS}I", self._memory, _CONTROL.size)
        return {self._names.get(n, str(n)): count for n, count in enumerate(counts) if count}


def may_supervise(program: Path, control: Path) -> bool:
    """Whether this system lets a process decide about system calls of another; sandboxes may not."""
    Supervisor(control)
    return subprocess.run([program, control, "true"], check=False).returncode == 0


def get(url: str, limit_s: float = _ANSWER_S) -> tuple[int, bytes]:
    """Status and body of an answer; status 0 where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=limit_s) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, ValueError) as error:
        return 0, str(error).encode()


@dataclass(slots=True)
class Server:
    """A verb that runs below the supervisor."""

    words: list[str]
    supervisor: Supervisor
    program: Path
    log: Path
    use: Callable[["Server"], None]  # what is done while calls fail
    works: Callable[["Server"], str]  # what does not work afterwards; "" where all does
    terminal: int = -1  # of a verb that has a screen
    address: str = ""
    shown: bytearray = field(default_factory=bytearray)
    process: subprocess.Popen[bytes] | None = None

    def start(self, on_terminal: bool = False) -> None:
        """Starts the verb; returns when it has printed its address, or drawn its screen."""
        command = [str(self.program), str(self.supervisor.path)]
        command += [sys.executable, "-m", "ncclscope", *self.words]
        self.supervisor.path.write_bytes(bytes(mmap.PAGESIZE))
        self.shown.clear()
        with self.log.open("wb") as log:
            if on_terminal:
                self.terminal, inner = pty.openpty()
                environment = os.environ | {
                    "TERM": "xterm-256color",
                    "COLUMNS": "80",
                    "LINES": "24",
                }
                self.process = subprocess.Popen(
                    command, stdin=inner, stdout=inner, stderr=inner, env=environment
                )
                os.close(inner)
            else:
                self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 10 * _ANSWER_S
        while time.monotonic() < end:
            self.look(0.1)
            match = re.search(rb"http://\S+", self.errors())
            if match or (on_terminal and b"processes alive" in self.shown):
                self.address = match[0].decode() if match else ""
                return
            assert self.process.poll() is None, self.errors()
        raise AssertionError(f"not started: {self.errors()!r}")

    def look(self, seconds: float) -> bytes:
        """What a screen shows within that time; of a server nothing."""
        end, new = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0:
            if self.terminal < 0:
                time.sleep(left)
            elif select.select([self.terminal], [], [], left)[0]:
                try:
                    new += os.read(self.terminal, 1 << 16)
                except OSError:  # the verb has ended
                    break
        self.shown += new
        return new

    def errors(self) -> bytes:
        """All that the verb printed."""
        return self.log.read_bytes() + bytes(self.shown)

    def stop(self) -> int:
        """Ends the verb; its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            end = time.monotonic() + _ANSWER_S
            while self.process.poll() is None and time.monotonic() < end:
                self.look(0.1)
            self.process.wait(timeout=0.1)
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1
        return code


def attempt(server: Server, fault: Fault | None) -> tuple[str, int]:
    """Uses a server while calls fail; what went wrong, "" where nothing did, and how many failed."""
    assert server.process
    if server.process.poll() is not None and _ends_with_terminal(server, server.errors()):
        server.stop()  # after the fault before, but slowly
        server.start(on_terminal=True)
    printed = len(server.errors())
    with server.supervisor.failing(fault):
        server.use(server)
    failed = server.supervisor.failed
    wrong = server.works(server)
    if _ends_with_terminal(server, server.errors()[printed:]):
        server.process.wait(_ANSWER_S)
    if server.process.poll() is not None:
        server.look(0.5)
        wrong = ""  # judged by what it said
    said = server.errors()[printed:]
    if server.process.poll() is not None and not _ends_with_terminal(server, said):
        wrong = f"ended with {server.process.returncode}: {said[-300:]!r}"
    for word in (b"Traceback", b"a mistake in ncclscope", b"exception was never retrieved"):
        if word in said:
            lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
            wrong = f"{word.decode()}: {lines[-1][:200]}"
    return wrong, failed


def _ends_with_terminal(server: Server, said: bytes) -> bool:
    """Whether a screen has ended with a sentence about its terminal, which it cannot do without."""
    return server.terminal >= 0 and b"ncclscope: the terminal cannot be used any more" in said


def faults_of(calls: dict[str, int], few: bool = False) -> list[Fault]:
    """Faults for calls that a server makes: the first, the second, the middle one, the last, all;
    with `few` only the middle one and all.
    """
    faults = []
    for call, made in sorted(calls.items()):
        wanted = (max(made // 2, 1),) if few else (1, 2, made // 2, made)
        places = sorted({place for place in wanted if 0 < place <= made})
        for error in ERRORS.get(call, ()):
            faults += [Fault(call, error, place) for place in places]
            faults.append(Fault(call, error, 1, EVERY))
    return faults


# ---- the three of them ----
def metrics_server(capture: Path, supervisor: Supervisor, program: Path, log: Path) -> Server:
    """`ncclscope serve` of a running job."""
    words = ["serve", str(capture), "--port", "0", "--interval", "0.1"]

    def use(server: Server) -> None:
        base = server.address.rpartition("/")[0]
        for path in ("/metrics", "/healthz", "/status.json"):
            get(base + path, _WHILE_FAILING_S)
        time.sleep(0.25)  # two readings
        get(base + "/metrics", _WHILE_FAILING_S)

    def works(server: Server) -> str:
        base, answer = server.address.rpartition("/")[0], b""
        end = time.monotonic() + _ANSWER_S
        while time.monotonic() < end and server.process and server.process.poll() is None:
            status, answer = get(base + "/metrics")
            ranks = set(re.findall(rb'ncclscope_process_up\{.*rank="(\d+)".*\} 1', answer))
            is_whole = status == 200 and {b"0", b"1"} <= ranks
            if is_whole and get(base + "/healthz")[0] == 200:
                return ""
            time.sleep(0.05)
        return f"no metrics: {answer[:200]!r}"

    return Server(words, supervisor, program, log, use, works)


_PATHS = ("", "app.js", "api/state", "api/scene", "api/overview", "api/highlights",
          "api/tile?z=20&i=0&rows=0,1,2,3", "api/item?row=1&item=0", "api/find?q=allreduce",
          "api/marks", "api/line?z=20&i=0&rows=0")  # fmt: skip


def timeline_server(capture: Path, supervisor: Supervisor, program: Path, log: Path) -> Server:
    """`ncclscope timeline` of a capture that changes."""
    words = ["timeline", str(capture), "--port", "0", "--no-open"]

    def use(server: Server) -> None:
        os.utime(next(capture.glob("*/log.*")))
        end = time.monotonic() + 1.3  # it looks for changes every second
        while time.monotonic() < end:
            for path in _PATHS:
                get(server.address + path, _WHILE_FAILING_S)
            time.sleep(0.1)

    def works(server: Server) -> str:
        answer, end = b"", time.monotonic() + _ANSWER_S
        os.utime(next(capture.glob("*/log.*")))  # a scene that could not be made is made now
        while time.monotonic() < end and server.process and server.process.poll() is None:
            statuses = [get(server.address + path)[0] for path in _PATHS[:4]]
            status, answer = get(server.address + "api/state")
            if status == 200 and b'"trouble":""' in answer and set(statuses) == {200}:
                return ""
            time.sleep(0.1)
        return f"no page: {answer[:200]!r}"

    return Server(words, supervisor, program, log, use, works)


def top_screen(capture: Path, supervisor: Supervisor, program: Path, log: Path) -> Server:
    """`ncclscope top` of a running job, on a terminal."""
    words = ["top", str(capture), "--interval", "0.1"]

    def use(server: Server) -> None:
        os.write(server.terminal, b"s")
        server.look(0.6)

    def works(server: Server) -> str:
        drawn, end = 0, time.monotonic() + _ANSWER_S
        while time.monotonic() < end and server.process and server.process.poll() is None:
            os.write(server.terminal, b"s")  # sorts by another column, which is drawn
            drawn += b"\x1b[" in server.look(0.2)  # an echo is no drawing
            if drawn > 3:  # the first may be the end of a screen
                return ""
        return "nothing is drawn"

    return Server(words, supervisor, program, log, use, works)
