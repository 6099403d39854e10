"""The plugin in its host process: loading, unloading, forking, concurrent init, exiting."""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ncclscope.capture.reader import open_capture
from ncclscope.capture.salvage import arena_dir, salvage
from ncclscope.native import empty_plugin_path, player_path, plugin_path
from ncclscope.nccl.events import INTERFACES
from tests.support.callback_script import Script
from tests.support.paths import C_SOURCES, ROOT
from tests.support.player import (
    dump,
    folder_of,
    ncclscope,
    player,
    recording,
    write_transcript,
)
from tests.support.waiting import eventually, wait_for_heartbeats

NOBODY = 65534
HOST = C_SOURCES / "host_process.c"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small program that does to the plugin what host processes do."""
    program = tmp_path_factory.mktemp("host") / "host"
    sources = ROOT / "native" / "src"
    command = ["gcc", "-O1", "-I", sources, "-o", program, HOST, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return program


def run_host(host: Path, capture: Path, *arguments: str, **variables: str) -> str:
    env = recording(capture, **variables)
    ran = subprocess.run(
        [host, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_dlclose_and_reload(host: Path, tmp_path: Path) -> None:
    run_host(host, tmp_path / "c", "reload")
    (process,) = open_capture(tmp_path / "c").processes
    assert len(process.communicators) == 5
    assert sum(event["event"] == "Group" for event in dump(tmp_path / "c")) == 5


def test_fork_children_record_nothing(host: Path, tmp_path: Path) -> None:
    run_host(host, tmp_path / "c", "fork")
    (process,) = open_capture(tmp_path / "c").processes
    events = [event for event in dump(tmp_path / "c") if event["event"] == "Group"]
    assert len(events) == 20, "the parent's, before and after; none of the children's"
    assert process.dropped() == 0


def test_vfork_children_take_nothing_away(host: Path, tmp_path: Path) -> None:
    run_host(host, tmp_path / "c", "vfork")
    (process,) = open_capture(tmp_path / "c").processes
    assert sum(event["event"] == "Group" for event in dump(tmp_path / "c")) == 110
    assert process.dropped() == 0


def test_a_job_that_closes_descriptors_of_others_keeps_its_files(
    host: Path, tmp_path: Path
) -> None:
    """It gets the numbers that the recorder's files had, for files of its own."""
    (tmp_path / "own").mkdir()
    command = [str(host), "closes", str(tmp_path / "own")]
    with subprocess.Popen(
        command, env=recording(tmp_path / "c"), stdin=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin
        folder = folder_of(tmp_path / "c")
        wait_for_heartbeats(folder, 2)
        running.stdin.write("\n")
        running.stdin.flush()
        eventually(lambda: len(list((tmp_path / "own").iterdir())) == 12)
        wait_for_heartbeats(folder, 3)
        assert salvage(tmp_path / "c") == [], "it is alive, and says so"
        running.stdin.write("\n")
        running.stdin.close()
        assert running.wait(60) == 0
    assert {path.read_text() for path in (tmp_path / "own").iterdir()} == {"minetoo"}
    (process,) = open_capture(tmp_path / "c").processes
    assert process.ended
    assert process.dropped() == 0
    assert process.counters.get(("write_failed", 0), 0) == 0
    assert sum(event["event"] == "Group" for event in dump(tmp_path / "c")) == 2020
    assert any("closed descriptors of the recorder" in note for note in process.notes)


def test_a_job_without_standard_streams_prints_into_no_file_of_ours(tmp_path: Path) -> None:
    """Whatever it opens first gets their numbers."""
    words = [str(player_path()), "load", "--collectives", "2000", "--rate", "100000"]
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words]
    with subprocess.Popen(shell, env=recording(tmp_path / "c")) as running:
        folder = folder_of(tmp_path / "c")
        streams = [Path(f"/proc/{running.pid}/fd/{number}") for number in range(3)]
        taken = [os.readlink(path) for path in streams if path.is_symlink()]
        assert not [path for path in taken if folder.name in path]
        running.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="names the host: needs root")
def test_a_host_without_a_name_has_arenas_that_are_found(tmp_path: Path) -> None:
    """A folder that begins with a dot is one that nobody lists."""
    name = "import ctypes, os, sys; ctypes.CDLL(None).sethostname(b'', 0); os.execv(sys.argv[1], sys.argv[1:])"
    words = [str(player_path()), "load", "--collectives", "5", "--end", "kill"]
    command = ["unshare", "-u", sys.executable, "-c", name, *words]
    subprocess.run(command, env=recording(tmp_path / "c"), timeout=60, check=False)
    (folder,) = salvage(tmp_path / "c")
    assert folder.name.startswith("unknown.")


def test_no_more_threads(host: Path) -> None:
    """Without a helper thread nothing is drained: what was recorded is salvaged from shared memory.

    The limit does not bind root, so root becomes nobody.
    """

    def become_limited() -> None:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    with tempfile.TemporaryDirectory() as temporary:
        program = shutil.copy(host, temporary)  # where nobody may look, unlike in tmp_path
        os.chmod(temporary, 0o777)
        capture = Path(temporary) / "c"
        subprocess.run(
            [program], env=recording(capture), timeout=60, preexec_fn=become_limited, check=True
        )
        assert not list(capture.rglob("*")), "nobody was there to write"
        assert ncclscope("salvage", capture).stdout.endswith("1 process brought in\n")
        assert sum(event["event"] == "Group" for event in dump(capture)) == 10


def test_a_forked_child_does_not_keep_a_dead_parent_alive(host: Path, tmp_path: Path) -> None:
    """The child lives on while the parent's memory is already everybody's to salvage."""
    run_host(host, tmp_path / "c", "orphan")
    events = dump(tmp_path / "c")
    assert sum(event["event"] == "Group" for event in events) == 10
    assert not [path for path in arena_dir().glob("*") if path.name == events[0]["process"]]


def test_concurrent_init(host: Path, tmp_path: Path) -> None:
    run_host(host, tmp_path / "c", "threads")
    (process,) = open_capture(tmp_path / "c").processes
    assert len({comm.number for comm in process.communicators}) == 64
    assert sum(event["event"] == "Group" for event in dump(tmp_path / "c")) == 6400


def test_concurrent_long_names(host: Path, tmp_path: Path) -> None:
    run_host(host, tmp_path / "c", "names")
    (process,) = open_capture(tmp_path / "c").processes
    names = sorted(comm.name for comm in process.communicators)
    assert names == sorted(letter * 1000 for letter in "ABCDEFGH" for _ in range(10))


def test_exec_leaves_what_was_recorded(host: Path, tmp_path: Path) -> None:
    run_host(host, tmp_path / "c", "exec")
    assert sum(event["event"] == "Group" for event in dump(tmp_path / "c")) == 10


@pytest.mark.parametrize("signal", ["segv", "abort"])
def test_crashes_leave_what_was_recorded(host: Path, tmp_path: Path, signal: str) -> None:
    ran = subprocess.run([host, signal], env=recording(tmp_path / "c"), check=False, timeout=60)
    assert ran.returncode < 0
    assert sum(event["event"] == "Group" for event in dump(tmp_path / "c")) == 10


def test_the_helper_has_less_priority_than_its_job(tmp_path: Path) -> None:
    """A fixed priority would let root's helper come before a job that has a lower one."""
    capture = tmp_path / "c"
    load = ["load", "--collectives", str(1 << 30), "--rate", "1000"]
    command = ["nice", "-n", "8", str(player_path()), *load]
    with subprocess.Popen(command, env=recording(capture), stdout=subprocess.DEVNULL) as running:
        folder_of(capture)
        threads = {
            (task / "comm").read_text().strip(): os.getpriority(os.PRIO_PROCESS, int(task.name))
            for task in Path(f"/proc/{running.pid}/task").iterdir()
        }
        own = os.getpriority(os.PRIO_PROCESS, running.pid)
        running.kill()
    assert own >= 8
    assert threads["ncclscope"] == min(own + 5, 19)


def test_signals_do_not_reach_the_helper(host: Path, tmp_path: Path) -> None:
    assert "handled by the main thread" in run_host(host, tmp_path / "c", "signals")


def test_nothing_stays_in_shared_memory_after_a_clean_end(tmp_path: Path) -> None:
    script = Script(6)
    script.init()
    script.stop(script.start("Group"))
    script.finalize()
    path = write_transcript(tmp_path / "s.jsonl", script.lines)
    assert player("play", path, env=recording(tmp_path / "c")).returncode == 0
    folder = next((tmp_path / "c").iterdir()).name
    assert not (arena_dir() / folder).exists()


def test_exit_waits_no_longer_than_told(tmp_path: Path) -> None:
    env = recording(Path("/proc/nowhere"), NCCLSCOPE_EXIT_WAIT="0.2")
    assert player("load", "--collectives", 10, env=env, timeout=5).returncode == 0


def test_bad_settings_are_named_and_survived(tmp_path: Path) -> None:
    env = recording(tmp_path / "c", mode="fuller", NCCL_DEBUG="INFO")
    played = player("load", "--collectives", 10, env=env)
    assert played.returncode == 0
    assert "NCCLSCOPE_MODE=fuller is not understood; using profile" in played.stderr


@pytest.mark.parametrize(("name", "least"), [("NCCLSCOPE_RING", "1M"), ("NCCLSCOPE_ARENA", "512K")])
def test_memory_that_would_hold_nothing_is_raised(name: str, least: str, tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCL_DEBUG="INFO", **{name: "64K"})
    played = player("load", "--collectives", 10, env=env)
    assert f"{name}=64K is too small; using {least}" in played.stderr
    (process,) = open_capture(tmp_path / "c").processes
    assert process.calls_counted() == 10
    assert not process.dropped()


def test_log_says_where_it_records(tmp_path: Path) -> None:
    played = player("load", "--collectives", 1, env=recording(tmp_path / "c", NCCL_DEBUG="INFO"))
    assert re.search(
        rf"records in full mode to {tmp_path}/c/\S+ \(\d+ MB shared memory\)", played.stderr
    )


@pytest.mark.parametrize("library", [plugin_path(), empty_plugin_path()])
def test_what_the_libraries_need_and_show(library: Path) -> None:
    """No CUDA, no NCCL, no Python, no C++ runtime; nothing exported but the seven objects, and from
    the plugin what NVTX, Python and simulated jobs call.
    """
    dynamic = subprocess.check_output(["readelf", "-dW", library], text=True)
    needed = set(re.findall(r"Shared library: \[(.+?)\]", dynamic))
    assert needed <= {
        "libc.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True)
    shown = {f"ncclProfiler_v{v}" for v in INTERFACES}
    if library == plugin_path():
        shown |= {"InitializeInjectionNvtx2", "InitializeInjectionNvtxExtension"}
        shown |= {f"ncclscope_range_{name}" for name in ("text", "push", "pop", "mark")}
        shown.add("ncclscope_python_module")
    assert {line.split()[-1] for line in symbols.splitlines()} == shown
    if library == plugin_path():
        assert "NODELETE" in dynamic
        # A library that needs static TLS space may fail to load late in a process.
        assert "STATIC_TLS" not in dynamic


def test_player_says_what_it_is() -> None:
    printed = subprocess.run([player_path()], capture_output=True, text=True, check=False)
    assert printed.returncode == 2
    assert "no GPU, no NCCL" in printed.stderr


def test_capture_folder_carries_host_and_pid(tmp_path: Path) -> None:
    assert player("load", "--collectives", 1, env=recording(tmp_path / "c")).returncode == 0
    folder = next((tmp_path / "c").iterdir()).name
    assert folder.startswith(os.uname().nodename.replace(".", "_") + ".")
