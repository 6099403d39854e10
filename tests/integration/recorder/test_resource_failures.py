"""Full disks, no shared memory, limits, deleted files: the job runs on, callbacks never wait, and it is said."""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ncclscope.capture.metadata import by_kind, read_meta_file
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture, resolve_capture
from ncclscope.capture.salvage import arena_dir
from ncclscope.capture.segment import Damage, open_file
from ncclscope.native import player_path
from tests.support.callback_script import Script
from tests.support.paths import C_SOURCES
from tests.support.player import Player, folder_of, recording, start_player, write_transcript
from tests.support.waiting import eventually, wait_for_heartbeats

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts small file systems: needs root")
# Slow enough for a helper thread that shares its core with other tests.
LOAD = ["load", "--collectives", "300", "--threads", "2", "--rate", "300000"]


def run(
    command: list[str],
    capture: Path,
    setup: str = "",
    limit: Callable[[], None] | None = None,
    **variables: str,
) -> tuple[str, str]:
    """Runs the player, after `setup` in a mount namespace of its own; stdout and NCCL's log."""
    env = recording(capture, **{"mode": "full", "NCCL_DEBUG": "INFO"} | variables)
    words = [str(player_path()), *command]
    if setup:
        words = ["unshare", "-m", "sh", "-ec", f'{setup}\nexec "$@"', "sh", *words]
    ran = subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "made" in ran.stdout or "played" in ran.stdout
    return ran.stdout, ran.stderr


def the_process(capture: Path) -> Process:
    (process,) = open_capture(resolve_capture(str(capture))).processes
    return process


def counted_calls(process: Process) -> int:
    return sum(tally.calls for tally in process.call_counts if tally.key.level == 1)


def test_a_capture_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    _, log = run(LOAD, tmp_path / "file" / "c", NCCLSCOPE_EXIT_WAIT="0.2", NCCLSCOPE_ARENA="2M")
    assert f"cannot create {tmp_path}/file/c" in log
    assert "Not a directory" in log


@needs_root
def test_a_read_only_capture_directory(tmp_path: Path) -> None:
    (tmp_path / "ro").mkdir()
    setup = f"mount -t tmpfs -o ro tmpfs {tmp_path}/ro; grep -q {tmp_path}/ro /proc/mounts"
    _, log = run(LOAD, tmp_path / "ro" / "c", setup, NCCLSCOPE_EXIT_WAIT="5")
    assert "Read-only file system" in log


@needs_root
def test_a_full_disk(tmp_path: Path) -> None:
    """What does not fit is counted; calls are counted exactly all the same."""
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    setup = f"mount -t tmpfs -o size=2m tmpfs {small}; grep -q {small} /proc/mounts"
    copy = f'trap "cp -r {small}/c {kept}" EXIT; "$@"; exit 0'
    env = recording(small / "c", "full", NCCL_DEBUG="INFO")
    words = [str(player_path()), "load", "--collectives", "1000", "--rate", "300000"]
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{setup}\n{copy}", "sh", *words],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "made 1440000 callbacks of interface v7, 0 starts refused" in ran.stdout, ran.stderr
    assert "No space left on device" in ran.stderr
    process = the_process(kept)
    lost = process.counters["write_failed", 0]
    assert lost > 100_000
    assert len(process.slots) > 10_000
    assert process.damage.bad_slots == 0
    assert counted_calls(process) == 1000


def written_so_far(process: Process) -> int:
    """Slots on record, and those that rotation has taken since: the limit is small."""
    return len(process.slots) + process.counters.get(("rotated_out", 0), 0)


@needs_root
def test_a_disk_that_has_room_again(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    subprocess.run(mount, check=True)
    try:
        assert os.path.ismount(small)
        filler = small / "filler"
        filler.write_bytes(b"x" * (3 << 20))
        load = ["load", "--collectives", 1 << 30, "--rate", 40_000]
        with start_player(*load, env=recording(small / "c", NCCLSCOPE_DISK_LIMIT="3M")) as running:
            folder = folder_of(small / "c")
            eventually(lambda: the_process(small / "c").counters.get(("write_failed", 0)))
            filler.unlink()
            wait_for_heartbeats(folder, 3)
            before = written_so_far(the_process(small / "c"))
            eventually(lambda: written_so_far(the_process(small / "c")) > before)
            process = the_process(small / "c")
            assert process.damage.bad_slots == 0
            running.kill()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_capture_that_is_deleted_under_it(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    load = ["load", "--collectives", 1 << 30, "--rate", 50_000]
    with start_player(*load, env=recording(capture)) as running:
        wait_for_heartbeats(folder_of(capture), 2)
        shutil.rmtree(capture)
        wait_for_heartbeats(folder_of(capture), 2)
        process = the_process(capture)
        assert running.poll() is None
        running.kill()
    assert process.communicators, "what a capture cannot be read without is there again"
    assert "AllReduce" in process.strings.values()
    assert len(process.slots) > 1000
    assert any("was deleted" in note for note in process.notes)
    assert process.counters["write_failed", 0] > 0


def test_slots_are_lost_once(tmp_path: Path) -> None:
    """However often the capture is deleted: what was written is on disk, or counted as lost."""
    capture = tmp_path / "c"
    load = ["load", "--collectives", 1400, "--rate", 180_000]  # twice as long as deleting takes
    with start_player(*load, env=recording(capture)) as running:
        for _ in range(2):
            wait_for_heartbeats(folder_of(capture), 2)
            shutil.rmtree(capture)
        running.communicate(timeout=60)
    process = the_process(capture)
    folder = capture / process.folder
    _, slots = read_meta_file(folder / "meta", Damage())
    (end,) = by_kind(slots).of("End")
    on_disk = 0
    for log in folder.glob("log.*"):
        header, data = open_file(log)
        on_disk += (len(data) - header.header_bytes) // 64
    assert sum("was deleted" in note for note in process.notes) == 2
    assert process.counters["write_failed", 0] + on_disk == int(end["slots_written"])


def test_somebody_truncates_our_files(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    load = ["load", "--collectives", 1 << 30, "--rate", 50_000]
    with start_player(*load, env=recording(capture)) as running:
        folder = folder_of(capture)
        wait_for_heartbeats(folder, 2)
        for path in [*folder.iterdir(), arena_dir() / folder.name]:
            os.truncate(path, 0)
        written: set[int] = set()  # when its live page was: nobody can read that page any more
        eventually(lambda: written.add((folder / "live").stat().st_mtime_ns) or len(written) > 3)
        assert running.poll() is None, "the job runs on"
        running.kill()
        _, log = running.communicate()
    assert "Traceback" not in log


def test_a_truncated_arena_is_noted(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    load = ["load", "--collectives", 1 << 30, "--rate", 50_000, "--threads", 2]
    with start_player(*load, env=recording(capture)) as running:
        folder = folder_of(capture)
        wait_for_heartbeats(folder, 2)
        os.truncate(arena_dir() / folder.name, 300_000)
        eventually(lambda: the_process(capture).counters.get(("slots_lost", 0)))
        process = the_process(capture)
        assert running.poll() is None
        running.kill()
    assert any("truncated" in note for note in process.notes)
    assert process.counters["slots_lost", 0] > 0


@needs_root
@pytest.mark.parametrize(
    ("mount", "where"),
    [
        ("-o size=1m", "private memory"),
        ("-o size=64m", "private memory"),
        ("-o ro", "private memory"),
        ("-o size=600m", "shared memory"),
    ],
)
def test_little_or_no_shared_memory(mount: str, where: str, tmp_path: Path) -> None:
    setup = (
        f"mount -t tmpfs {mount} tmpfs /dev/shm; tail -1 /proc/mounts | grep -q '/dev/shm tmpfs'"
    )
    printed, log = run(LOAD, tmp_path / "c", setup)
    assert where in log
    process = the_process(tmp_path / "c")
    assert process.dropped() == 0, printed
    assert counted_calls(process) == 600


@needs_root
def test_shared_memory_that_others_have_filled(tmp_path: Path) -> None:
    setup = (
        "mount -t tmpfs -o size=600m tmpfs /dev/shm; tail -1 /proc/mounts | grep -q '/dev/shm tmpfs'\n"
        "head -c 590m /dev/zero > /dev/shm/filler"
    )
    _, log = run(LOAD, tmp_path / "c", setup)
    assert "records in full mode" in log
    assert counted_calls(the_process(tmp_path / "c")) == 600


@needs_root
def test_read_only_everything(tmp_path: Path) -> None:
    (tmp_path / "ro").mkdir()
    setup = f"mount -t tmpfs -o ro tmpfs {tmp_path}/ro; mount -t tmpfs -o ro tmpfs /dev/shm; grep -q {tmp_path}/ro /proc/mounts"
    _, log = run(LOAD, tmp_path / "ro" / "c", setup, NCCLSCOPE_EXIT_WAIT="5")
    assert "private memory" in log
    assert "Read-only file system" in log


def limiting(which: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(which, (value, value))


def test_file_size_limit(tmp_path: Path) -> None:
    """Files end at the limit; SIGXFSZ does not end the job."""
    load = ["load", "--collectives", "2000"]
    _, log = run(load, tmp_path / "c", limit=limiting(resource.RLIMIT_FSIZE, 1 << 20))
    assert "private memory" in log, "an arena would be larger than files may be"
    assert "File too large" in log
    process = the_process(tmp_path / "c")
    assert process.counters["write_failed", 0] > 0
    assert counted_calls(process) == 2000


def test_address_space_limit(tmp_path: Path) -> None:
    run(
        ["load", "--collectives", "200"],
        tmp_path / "c",
        limit=limiting(resource.RLIMIT_AS, 60 << 20),
    )
    assert counted_calls(the_process(tmp_path / "c")) == 200


def test_hardly_any_descriptors(tmp_path: Path) -> None:
    run(["load", "--collectives", "50"], tmp_path / "c", limit=limiting(resource.RLIMIT_NOFILE, 5),
        NCCLSCOPE_EXIT_WAIT="0.2")  # fmt: skip


@pytest.fixture(scope="module")
def slow_io(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("slow") / "slow_io.so"
    source = C_SOURCES / "slow_io.c"
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", library, source, "-ldl"], check=True)
    return library


def test_a_slow_directory_delays_nothing(slow_io: Path, tmp_path: Path) -> None:
    """Every write takes 300 ms, and no thread waits for it but the recorder's own."""
    log = tmp_path / "waited"
    run(
        ["load", "--collectives", "600", "--rate", "400000"], tmp_path / "c", LD_PRELOAD=str(slow_io),
        SLOW_IO_MS="300", SLOW_IO_LOG=str(log), NCCLSCOPE_EXIT_WAIT="60",
    )  # fmt: skip
    assert set(log.read_text().splitlines()) == {"ncclscope"}
    process = the_process(tmp_path / "c")
    assert process.dropped() == 0
    assert counted_calls(process) == 600


def test_a_stuck_directory_costs_events_not_time(slow_io: Path, tmp_path: Path) -> None:
    """A write takes half an hour. A callback that waited for it, or an exit, would not end in time."""
    load = ["load", "--collectives", "3000", "--rate", "1500000"]
    printed, _ = run(
        load, tmp_path / "c", LD_PRELOAD=str(slow_io), SLOW_IO_MS="1800000", NCCLSCOPE_EXIT_WAIT="0.3",
        NCCLSCOPE_ARENA="8M",
    )  # fmt: skip
    assert " 0 starts refused" not in printed


def stop_in_a_write(running: Player, order: Path) -> None:
    """The helper thread neither runs nor is ready to for 100 ms, as if the host had its CPU."""
    order.touch()
    _, status = os.waitpid(running.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(0.1)
    running.send_signal(signal.SIGCONT)


def test_a_thread_whose_cpu_is_taken_has_no_slow_disk(slow_io: Path, tmp_path: Path) -> None:
    """A stop looks like a wait for the disk. One by itself does not make the arena grow; two in a
    row do, as writes to a slow disk would.
    """
    order, limit = tmp_path / "order", 64 << 20
    env = recording(
        tmp_path / "c", LD_PRELOAD=str(slow_io), SLOW_IO_MS="1", SLOW_IO_STOP=str(order),
        NCCLSCOPE_ARENA=str(limit),
    )  # fmt: skip
    with start_player("load", "--collectives", 1 << 30, "--rate", 5_000, env=env) as running:
        folder = folder_of(tmp_path / "c")
        arena = arena_dir() / folder.name
        for _ in range(2):
            stop_in_a_write(running, order)
            wait_for_heartbeats(folder, 4)
            assert arena.stat().st_blocks * 512 < 40 << 20

        def grows_after_one_more() -> bool:
            stop_in_a_write(running, order)
            return arena.stat().st_blocks * 512 >= limit

        eventually(grows_after_one_more)
        running.kill()


def test_five_thousand_threads(tmp_path: Path) -> None:
    """A hundred at a time: streams of threads that ended are handed on.

    There are 2046 streams; without that three of five threads would find none. A machine that
    starves the helper thread for a second may cost a few their events, never their counts.
    """
    load = ["load", "--threads", "100", "--generations", "50", "--pause", "80"]
    load += ["--collectives", "2", "--channels", "1", "--steps", "1"]
    printed, _ = run(load, tmp_path / "c")
    refused = int(printed.split(", ")[1].split()[0])
    process = the_process(tmp_path / "c")
    assert counted_calls(process) == 10_000
    assert process.dropped() == refused
    assert refused < 0.05 * 10_000 * 12


def test_thousands_of_threads_at_once(tmp_path: Path) -> None:
    """More than there are streams: what finds none is dropped and counted, calls are not."""
    load = ["load", "--threads", "3000", "--collectives", "3", "--channels", "1", "--steps", "1"]
    printed, _ = run(load, tmp_path / "c")
    refused = int(printed.split(", ")[1].split()[0])
    process = the_process(tmp_path / "c")
    assert counted_calls(process) == 9000
    assert process.dropped() == refused


def test_a_thousand_communicators_come_and_go(tmp_path: Path) -> None:
    script = Script(6)
    for _ in range(1000):
        comm = script.init()
        handle = script.start("CollApi", ctx=comm, func="AllReduce", count=4, dtype="ncclInt8", root=0,
                              stream="0", graph=0)  # fmt: skip
        script.stop(handle)
        script.finalize(comm)
    path = write_transcript(tmp_path / "s.jsonl", script.lines)
    run(["play", str(path)], tmp_path / "c")
    process = the_process(tmp_path / "c")
    assert len(process.communicators) == 1000
    assert all(comm.t_close for comm in process.communicators)
    assert counted_calls(process) == 1000
