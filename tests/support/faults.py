"""Jobs in which one of the recorder's calls to the system fails: did the job notice, and do readers
say the truth about what is missing?
"""

import errno
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.contents import contents_of_capture
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture
from ncclscope.capture.salvage import arena_dir, salvage
from ncclscope.errors import NcclscopeError
from ncclscope.native import player_path, plugin_path
from tests.support.paths import C_SOURCES
from tests.support.player import player, recording

COLLECTIVES = 80  # of each thread
CALLS = 2 * COLLECTIVES
LOAD = ["load", "--collectives", COLLECTIVES, "--threads", 2, "--rate", 200_000]
EVERY = 0  # times of a fault: all calls from the first on
MOST_LINES = 2  # of the recorder in NCCL's log: at the start, and one about the fault
NOTHING_KEPT = "nothing is recorded|nothing will be left|cannot (create|write to)"
_LOSSES = ("write_failed", "slots_lost", "updates_dropped", "meta_dropped", "rotated_out")

_PATH_ERRORS = ("EACCES", "EPERM", "ENOMEM", "EIO", "ENOSPC", "EDQUOT", "EROFS", "ESTALE", "EMFILE")
_STAT_ERRORS = ("EACCES", "EIO", "ESTALE", "ENOMEM")
_REFUSED = ("EPERM", "ENOSYS")  # by a sandbox's filter
# Errors of each call that the system may give, or a sandbox's filter. "0": a write or read that
# moves nothing.
ERRORS: dict[str, tuple[str, ...]] = {
    "__cxa_atexit": ("ENOMEM",),
    "__register_atfork": ("ENOMEM",),
    "access": _STAT_ERRORS,
    "calloc": ("ENOMEM",),
    "clock_gettime": ("EINVAL", *_REFUSED),
    "close": ("EIO", "EINTR", "EDQUOT"),
    "closedir": ("EBADF",),
    "dirfd": ("EINVAL",),
    "fallocate": ("ENOSPC", "EDQUOT", "EINTR", "EIO", "EOPNOTSUPP", *_REFUSED),
    "fcntl": ("EINVAL", "EMFILE", "EPERM"),
    "flock": ("EINTR", "ENOLCK", "EWOULDBLOCK", *_REFUSED),
    "fstat": (*_STAT_ERRORS, "EPERM"),
    "fstatat": (*_STAT_ERRORS, "ENOENT", "EPERM"),
    "ftruncate": ("ENOSPC", "EINTR", "EIO", "EFBIG", "EPERM"),
    "getcwd": ("ENOENT", "EACCES"),
    "gethostname": ("ENAMETOOLONG", "EPERM"),
    "getrlimit": _REFUSED,
    "getrusage": _REFUSED,
    "localtime_r": ("EOVERFLOW",),
    "lstat": _STAT_ERRORS,
    "madvise": ("EPERM", "EINVAL", "ENOMEM", "EAGAIN", "EIO", "EACCES", "ENOSYS", "EFAULT"),
    "malloc": ("ENOMEM",),
    "mkdir": (*_PATH_ERRORS, "ENOENT", "ENOTDIR", "EEXIST"),
    "mmap": ("ENOMEM", "EAGAIN", "ENFILE", "EPERM", "EACCES", "ENODEV"),
    "munmap": ("ENOMEM", "EPERM"),
    "nanosleep": ("EINTR", *_REFUSED),
    "nice": ("EACCES", "EPERM"),
    "open": (*_PATH_ERRORS, "EINTR", "ENFILE", "ENXIO"),
    "openat": (*_PATH_ERRORS, "EINTR", "ENFILE", "EEXIST"),
    "opendir": ("EACCES", "EMFILE", "ENOMEM"),
    "prctl": _REFUSED,
    "pthread_cond_init": ("EAGAIN", "ENOMEM"),
    "pthread_cond_timedwait": ("EINVAL", "EPERM"),
    "pthread_condattr_init": ("ENOMEM",),
    "pthread_condattr_setclock": ("EINVAL",),
    "pthread_create": ("EAGAIN", "EPERM", "ENOMEM"),
    "pthread_detach": ("EINVAL",),
    "pthread_key_create": ("EAGAIN", "ENOMEM"),
    "pthread_setname_np": ("EACCES", "ERANGE"),
    "pthread_setspecific": ("ENOMEM",),
    "pthread_sigmask": ("EINVAL",),
    "pread": ("EIO", "EINTR", "EAGAIN", "ESTALE", "0"),
    "pwrite": (
        "EIO",
        "ENOSPC",
        "EDQUOT",
        "EAGAIN",
        "ESTALE",
        "EINTR",
        "EFBIG",
        "EPERM",
        "ENOMEM",
        "0",
    ),
    "read": ("EIO", "EAGAIN", "EINTR", "ESTALE", "EISDIR", "0"),
    "readdir": ("EBADF", "EIO"),
    "realloc": ("ENOMEM",),
    "realpath": ("EACCES", "ENOENT"),
    "renameat": (*_PATH_ERRORS, "EBUSY"),
    "sched_setaffinity": ("EINVAL", "EPERM"),
    "sigaction": ("EINVAL", "EPERM"),
    "stat": (*_STAT_ERRORS, "ENOENT"),
    "statvfs": ("EACCES", "EIO", "ENOENT", "ENOSYS"),
    "syscall": _REFUSED,
    "sysconf": ("EINVAL",),
    "time": ("EFAULT",),
    "uname": ("EFAULT", "EPERM"),
    "unlink": ("EACCES", "EPERM", "EIO", "EBUSY", "EROFS", "ENOENT"),
    "unlinkat": ("EACCES", "EPERM", "EIO", "EBUSY", "EROFS", "ENOENT"),
}
# What else the plugin links: calculations, and functions that cannot fail as it uses them. dl…
# asks the dynamic linker about what is loaded already.
_HARMLESS = """
    _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __ctype_tolower_loc __cxa_finalize
    __environ __errno_location __getauxval __gmon_start__ __tls_get_addr __stack_chk_fail
    dl_iterate_phdr dladdr dlclose dlerror dlopen dlsym environ free getenv geteuid getpid getppid
    getuid memchr memcmp memcpy memmove memset pthread_cond_broadcast pthread_mutex_lock
    pthread_mutex_unlock pthread_once pthread_self qsort sigdelset sigemptyset sigfillset signal snprintf strchr strcmp
    strcspn strerror strftime strlen strncmp strnlen strrchr strstr strtod strtok_r strtol strtoul
    strtoull vsnprintf
"""
HARMLESS = frozenset(_HARMLESS.split())
WITHOUT_STDIN = {"fcntl"}  # calls of a recorder that must move a descriptor out of the way


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call fails how, from which one on, and how often."""

    call: str
    error: str  # a name of errno; "0": nothing is moved
    first: int = 1
    times: int = EVERY


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job with a fault."""

    fault: Fault
    failed_calls: int
    problem: str  # "": the job is unharmed and readers say the truth
    recorded: str  # what is on record, in words


def calls_linked() -> list[str]:
    """Names that the plugin takes from other libraries."""
    command = ["nm", "-D", "--undefined-only", str(plugin_path())]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[-1].partition("@")[0] for line in lines.splitlines()]


def build_library(directory: Path) -> Path:
    """What makes calls fail, to be preloaded."""
    library = directory / "faulty_calls.so"
    source = C_SOURCES / "faulty_calls.c"
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", library, source, "-ldl"], check=True)
    return library


@dataclass(frozen=True, slots=True)
class Bench:
    """What all jobs of a sweep share."""

    directory: Path
    library: Path
    dead_arena: Path  # of a killed process: the recorder of each job salvages a copy
    calls_made: dict[str, int]  # by the recorder, in a job without a fault
    events: int  # on record then

    def jobs_with(self, call: str, error: str) -> list[Fault]:
        """The first, the second, the middle and the last call fails, all do, all do from the middle
        on.
        """
        made = self.calls_made.get(call, 0)
        places = sorted({number for number in (1, 2, made // 2, made) if 0 < number <= made})
        faults = [Fault(call, error, number, 1) for number in places]
        faults += [Fault(call, error)] if made else []
        return [*faults, Fault(call, error, made // 2)] if made > 3 else faults


def prepare(directory: Path) -> Bench:
    """Builds the library, kills a process for its arena, and records a job without a fault."""
    library = build_library(directory)
    killed = player(
        *["load", "--collectives", 60, "--rate", 200_000, "--end", "kill"],
        env=recording(directory / "dead", NCCLSCOPE_ARENA="2M"),
    )
    assert killed.returncode == -9
    arena = max(arena_dir().iterdir(), key=lambda path: path.stat().st_mtime_ns)
    kept = directory / "kept" / arena.name
    kept.parent.mkdir()
    shutil.copyfile(arena, kept)
    bench = Bench(directory, library, kept, {}, 0)
    ran, log = _run(bench, None, directory / "whole")
    assert ran.returncode == 0, ran.stderr
    (contents,) = contents_of_capture(directory / "whole")
    assert contents.calls == CALLS
    ran, without_stdin = _run(bench, None, directory / "without-stdin", stdin=False)
    assert ran.returncode == 0, ran.stderr
    log |= {call: without_stdin[call] for call in WITHOUT_STDIN}
    return Bench(
        directory, library, kept, {call: made for call, (made, _) in log.items()}, contents.events
    )


def fault_variables(bench: Bench, fault: Fault) -> dict[str, str]:
    """Variables that make a call fail."""
    variables = {
        "LD_PRELOAD": str(bench.library),
        "FAULT_CALL": fault.call,
        "FAULT_ERRNO": str(getattr(errno, fault.error, 0)),
        "FAULT_FIRST": str(fault.first),
    }
    return variables | ({"FAULT_TIMES": str(fault.times)} if fault.times != EVERY else {})


def _run(
    bench: Bench, fault: Fault | None, capture: Path, stdin: bool = True
) -> tuple[subprocess.CompletedProcess[str], dict[str, tuple[int, int]]]:
    """A job, and how often the recorder made each call, and how many of them failed."""
    shutil.copyfile(bench.dead_arena, arena_dir() / bench.dead_arena.name)
    log = capture.with_suffix(".calls")
    env = recording(capture, NCCLSCOPE_ARENA="8M", NCCL_DEBUG="INFO", FAULT_LOG=str(log))
    env |= fault_variables(bench, fault) if fault else {"LD_PRELOAD": str(bench.library)}
    closing = [] if stdin else ["sh", "-c", 'exec "$@" <&-', "sh"]
    command = [*closing, str(player_path()), *map(str, LOAD)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return ran, {name: (int(made), int(failed)) for name, made, failed in lines}


def run_with_fault(bench: Bench, fault: Fault) -> Outcome:
    """Runs a job with a fault and judges it."""
    name = f"{fault.call}-{fault.error}-{fault.first}-{fault.times}"
    capture = bench.directory / name
    ran, log = _run(bench, fault, capture, fault.call not in WITHOUT_STDIN)
    failed = log.get(fault.call, (0, 0))[1]
    problem, recorded = _judge(bench, ran, capture)
    if not problem:
        shutil.rmtree(capture, ignore_errors=True)
    return Outcome(fault, failed, problem, recorded)


def _judge(bench: Bench, ran: subprocess.CompletedProcess[str], capture: Path) -> tuple[str, str]:
    """What is wrong, "" if nothing; and what is on record."""
    lines = [line for line in ran.stderr.splitlines() if "PROFILER/ncclscope" in line]
    if ran.returncode != 0 or "made" not in ran.stdout:
        return f"the job ended with {ran.returncode}", "?"
    if len(lines) > MOST_LINES or len(set(lines)) < len(lines):
        return f"{len(lines)} lines in the log", "?"
    salvage(capture)
    try:
        processes = open_capture(capture).processes if capture.is_dir() else ()
    except NcclscopeError as error:
        return str(error), "?"
    if not processes:
        said = any(re.search(NOTHING_KEPT, line) for line in lines)
        return ("" if said else "nothing is on record, and nobody says so"), "nothing"
    return _judge_process(bench, processes[0], capture)


def _judge_process(bench: Bench, process: Process, capture: Path) -> tuple[str, str]:
    calls = process.calls_counted()
    events = sum(contents.events for contents in contents_of_capture(capture))
    missing = process.dropped() + sum(process.counters.get((name, 0), 0) for name in _LOSSES)
    if process.damage.bad_slots or process.damage.unreadable:
        return str(process.damage), "?"
    early = ", counts end early" if process.counts_end_early else ""
    recorded = "everything" if calls == CALLS and events == bench.events else "counts" + early
    if calls > CALLS or (calls < CALLS and not early):
        return f"{calls} calls counted of {CALLS}", recorded
    if events < bench.events and not missing and not early:
        return f"{events} events of {bench.events}, and nothing is counted as lost", recorded
    return "", recorded
