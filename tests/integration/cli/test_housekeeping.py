"""ls, prune, pack, salvage, and NCCL's own log inside a capture."""

import json
import os
import shutil
import signal
import tarfile
import time
from pathlib import Path

import pytest

from ncclscope.capture import housekeeping
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.housekeeping import captures_below, is_running, parse_age, parse_bytes
from ncclscope.capture.reader import newest_capture, open_capture
from ncclscope.capture.redact import Redaction
from ncclscope.capture.salvage import arena_dir
from ncclscope.cli import main
from ncclscope.errors import UsageError
from ncclscope.native import player_path
from tests.support.player import dump, folder_of, ncclscope, player, recording, start_player
from tests.support.waiting import wait_for_heartbeats


def record(
    directory: Path, name: str, *options: str, mode: str = "trace", **variables: str
) -> Path:
    capture = directory / name
    player("load", "--collectives", 20, *options, env=recording(capture, mode, **variables))
    return capture


def make_older(capture: Path, seconds: float) -> None:
    when = time.time() - seconds
    for path in capture.rglob("*"):
        os.utime(path, (when, when))


def test_ls(tmp_path: Path) -> None:
    record(tmp_path, "first", mode="profile", RANK="0", SLURM_JOB_ID="4711")
    killed = record(tmp_path, "second", "--end", "kill", RANK="3")
    ncclscope("salvage", killed)
    with start_player(
        "load", "--collectives", 1 << 30, "--rate", 1000, env=recording(tmp_path / "third", "full")
    ) as running:
        folder_of(tmp_path / "third")
        printed = ncclscope("ls", tmp_path)
        listed = json.loads(ncclscope("ls", "--json", tmp_path).stdout)["captures"]
        running.kill()
    assert printed.returncode == 0, printed.stderr
    by_name = {Path(row["capture"]).name: row for row in listed}
    assert by_name["first"]["state"] == "ended"
    assert by_name["first"]["job"] == "4711"
    assert by_name["first"]["modes"] == ["profile"]
    assert by_name["second"]["state"] == "ended abruptly"
    assert by_name["second"]["ranks"] == [3]
    assert by_name["third"]["state"] == "running"
    assert all(row["total_bytes"] > 1000 for row in listed)
    assert "1 on 1 host" in printed.stdout
    assert ncclscope("ls", tmp_path / "nothing").returncode == 2


@pytest.mark.parametrize(
    "variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"]
)
def test_ls_knows_the_ranks_of_every_launcher(variable: str, tmp_path: Path) -> None:
    (info,) = captures_below(record(tmp_path, "c", mode="profile", **{variable: "5"}))
    assert info.ranks == (5,)


def test_prune_by_age_and_size(tmp_path: Path) -> None:
    captures = [record(tmp_path, name) for name in ("old", "older", "new")]
    make_older(captures[0], 3 * 86400)
    make_older(captures[1], 30 * 86400)
    dry = ncclscope("prune", "--older-than", "2d", "--dry-run", tmp_path)
    assert "2 captures" in dry.stdout
    assert len(captures_below(tmp_path)) == 3
    ncclscope("prune", "--older-than", "7d", tmp_path)
    assert [info.path.name for info in captures_below(tmp_path)] == ["old", "new"]
    size = captures_below(tmp_path)[1].bytes
    ncclscope("prune", "--keep", str(size), tmp_path)
    assert [info.path.name for info in captures_below(tmp_path)] == ["new"]
    assert ncclscope("prune", tmp_path).returncode == 2
    assert ncclscope("prune", "--older-than", "soon", tmp_path).returncode == 2


def test_reading_a_capture_does_not_make_it_newer(tmp_path: Path) -> None:
    old, new = record(tmp_path, "old"), record(tmp_path, "new")
    make_older(old, 1000)
    assert ncclscope("report", old).returncode == 0
    assert (old / "model").is_dir()
    assert newest_capture(tmp_path) == new
    assert [info.path for info in captures_below(tmp_path)] == [old, new]
    assert time.time() - captures_below(tmp_path)[0].newest > 900


def test_samples_of_a_job_that_never_came_to_nccl(tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "system.log.jsonl").write_text("somebody else's\n")
    (only / "system.n1.77.0.jsonl").write_text('{"ncclscope":"system","version":1}\n')
    (young,) = captures_below(tmp_path)
    assert (young.path, young.processes, young.state) == (only, 0, "running")
    make_older(only, 100)
    assert captures_below(tmp_path)[0].state == "ended"
    assert ncclscope("ls", tmp_path).returncode == 0
    ncclscope("prune", "--older-than", "10s", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_prune_leaves_running_captures_alone(tmp_path: Path) -> None:
    env = recording(tmp_path / "live", "profile")
    with start_player("load", "--collectives", 1 << 30, "--rate", 1000, env=env) as running:
        folder_of(tmp_path / "live")
        pruned = ncclscope("prune", "--keep", "0", tmp_path)
        running.kill()
    assert "1 running capture left alone" in pruned.stdout
    assert (tmp_path / "live").is_dir()


def test_prune_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    capture = record(tmp_path / "captures", "c")
    (capture / "link").symlink_to(precious)
    ncclscope("prune", "--keep", "0", tmp_path / "captures")
    assert not capture.exists()
    assert (precious / "file").read_text() == "mine"


def test_ages_and_sizes() -> None:
    assert parse_age("90m") == 5400
    assert parse_age("1.5d") == 129600
    assert parse_bytes("2G") == parse_bytes("2gb") == 2 << 30
    for bad in ("", "7", "d", "-1d"):
        with pytest.raises(UsageError):
            parse_age(bad)


@pytest.mark.parametrize("replace", [False, True])
def test_pack(replace: bool, tmp_path: Path) -> None:
    host = os.uname().nodename
    capture = record(
        tmp_path,
        "secret-project",
        "--end",
        "kill",
        RANK="1",
        NCCL_TEST="kept",
        MASTER_ADDR="10.1.2.3",
        NCCL_COMM_ID="10.1.2.3:99",
        NCCL_ADDRESS="at 10.1.2.3",
        NCCL_DEBUG_FILE="secret-project.log",
        NCCL_TOPO="../secret-project/topo.xml",
        NCCL_HOSTID=f"{host}-4",
        NCCL_ON=f"run on {host}.",
        NCCLSCOPE_CHAIN=f"{tmp_path}/secret-project with spaces/plugin.so",
    )
    packed = ncclscope(
        "pack", capture, "-o", tmp_path / "report.tar.gz", *(["--replace-hosts"] if replace else [])
    )
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(tmp_path / "report.tar.gz") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked" / "report").iterdir()
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    for private in (
        b"secret-project",
        b"10.1.2.3",
        b"ncclscope-player load",
        str(tmp_path).encode(),
    ):
        assert private not in content
    (process,) = open_capture(tmp_path / "unpacked" / "report").processes
    assert process.identity["env.NCCL_TEST"] == "kept"
    assert process.identity["env.RANK"] == "1"
    assert process.host == ("host1" if replace else host)
    assert folder.name.startswith("host1." if replace else host.replace(".", "_"))
    for gone in ("NCCL_COMM_ID", "NCCL_ADDRESS", "NCCL_DEBUG_FILE", "NCCL_TOPO"):
        assert f"env.{gone}" not in process.identity
    (note,) = process.notes
    assert note.startswith("NCCLSCOPE_CHAIN=<path> is left out: <path>: cannot open shared object")
    if replace:
        assert not [key for key, value in process.identity.items() if host in value]
        assert host.encode() + b"\0" not in content
        assert process.identity["env.NCCL_HOSTID"] == "host2"
        assert process.identity["env.NCCL_ON"] == "run on host1."
        assert "Replaced: the names of its hosts" in packed.stdout
    (original,) = open_capture(capture).processes
    theirs = [{**e, "process": ""} for e in events_of(process)]
    assert theirs == [{**e, "process": ""} for e in events_of(original)]


@pytest.mark.parametrize("end", ["finalize", "kill"])
def test_pack_cleans_notes_wherever_they_are(end: str, tmp_path: Path) -> None:
    """On disk, in shared memory that was brought in, and in what is left of both there."""
    chain = f"{tmp_path}/secret-project/{'x' * 150}.so"
    capture = record(tmp_path, "c", "--end", end, mode="full", NCCLSCOPE_CHAIN=chain)
    assert ncclscope("pack", capture, cwd=tmp_path).returncode == 0
    with tarfile.open(tmp_path / "c.tar.gz") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    for path in (tmp_path / "unpacked").rglob("*"):
        assert path.is_dir() or b"secret-project" not in path.read_bytes(), path
    (process,) = open_capture(tmp_path / "unpacked" / "c").processes
    assert len(process.notes) == 1


def test_hosts_and_paths_in_notes() -> None:
    identity = {"host": "node1.example.org", "capture": "/data/my run", "folder": "node1.2.3"}
    redaction = Redaction([identity, {"host": "node2"}], replace_hosts=True)
    for note, clean in (
        ("cannot write to /data/my run/node1.2.3: No space", "cannot write to <path>: No space"),
        ("a relative/one, and 3/4", "a <path>, and <path>"),
        ("NODE1 and node1.example.org, not node10", "host1 and host1, not node10"),
        ("told by node2", "told by host2"),
    ):
        assert redaction.note(note, identity) == clean
    kept = Redaction([identity], replace_hosts=False)
    assert kept.note("on node1: /a", identity) == "on node1: <path>"


def test_salvage_for_an_epilog(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    for _ in range(2):
        player("load", "--collectives", 20, "--end", "kill", env=recording(capture))
    saved = ncclscope("salvage")
    assert saved.returncode == 0
    # The second recorder may have lived long enough to bring in the first.
    assert saved.stdout.count(f"{capture}/") in (1, 2)
    brought_in = list(capture.glob("*/arena"))
    assert len(brought_in) == 2
    assert not [path for path in brought_in if (arena_dir() / path.parent.name).exists()]
    assert sum(event["event"] == "Coll" for event in dump(capture)) == 40
    assert "0 processes brought in" in ncclscope("salvage", capture).stdout


def test_salvage_leaves_what_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    env = recording(tmp_path / "file" / "c", NCCLSCOPE_EXIT_WAIT="0.1")
    others = set(arena_dir().glob("*"))
    player("load", "--collectives", 20, "--end", "kill", env=env)
    assert str(tmp_path) not in ncclscope("salvage").stdout
    assert len(set(arena_dir().glob("*")) - others) == 1
    (tmp_path / "file").unlink()
    assert f"{tmp_path}/file/c/" in ncclscope("salvage", umask=0o022).stdout
    for path in (tmp_path / "file", *(tmp_path / "file").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def killed(capture: Path) -> str:
    """Records into a capture, is killed, and returns the name of its folder."""
    load = ["load", "--collectives", 1 << 30, "--rate", 1000]
    with start_player(*load, env=recording(capture)) as running:
        wait_for_heartbeats(folder_of(capture), 1)
        running.kill()
    return next(capture.iterdir()).name


def test_salvage_does_not_bring_back_what_was_deleted(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    folder = killed(capture)
    shutil.rmtree(capture)
    assert (arena_dir() / folder).exists()
    salvaged = ncclscope("salvage", capture)
    assert salvaged.returncode == 2
    assert "no such directory, and nothing in shared memory" in salvaged.stderr
    assert not capture.exists()
    assert not (arena_dir() / folder).exists(), "it goes with the rest"


def test_readers_do_not_bring_back_what_was_deleted(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    killed(capture)
    shutil.rmtree(capture)
    assert ncclscope("dump", capture).returncode == 2
    assert not capture.exists()


@pytest.mark.parametrize("pattern", [[], ["../never/*"]])
def test_a_capture_that_is_in_shared_memory_only(pattern: list[str], tmp_path: Path) -> None:
    """Found without its name, too."""
    in_the_way = tmp_path / "never"
    in_the_way.write_text("in the way")
    env = recording(in_the_way / "c", NCCLSCOPE_EXIT_WAIT="0.1")
    player("load", "--collectives", 20, "--end", "kill", env=env)
    in_the_way.unlink()
    here = tmp_path / "elsewhere" if pattern else in_the_way
    here.mkdir()
    printed = ncclscope("dump", "--json", "--event", "Coll", *pattern, cwd=here)
    assert printed.returncode == 0, printed.stderr
    assert len(printed.stdout.splitlines()) == 20


def test_nccl_debug_goes_into_the_capture(tmp_path: Path) -> None:
    show = 'echo "$NCCL_DEBUG $NCCL_DEBUG_SUBSYS $NCCL_DEBUG_FILE"'
    capture = tmp_path / "c"
    base = {n: v for n, v in os.environ.items() if not n.startswith("NCCL")}
    run = ["run", "-q", "-o", capture, "--nccl-debug"]
    ran = ncclscope(*run, "info:init,net", "--", "sh", "-c", show, env=base)
    assert ran.stdout == f"INFO INIT,NET {capture}/debug.%h.%p\n"
    assert capture.is_dir(), "NCCL does not make directories"
    ran = ncclscope(*run, "TRACE", "--", "sh", "-c", show, env=base | {"NCCL_DEBUG_FILE": "/mine"})
    assert ran.stdout == "TRACE  /mine\n"
    assert "NCCL_DEBUG_FILE stays as you set it" in ran.stderr
    assert ncclscope(*run, "LOUD", "--", "true", env=base).returncode == 2
    (tmp_path / "file").write_text("in the way")
    run = ["run", "-q", "-o", tmp_path / "file" / "c", "--nccl-debug"]
    ran = ncclscope(*run, "INFO", "--", "true", env=base)
    assert ran.returncode == 2
    assert "file/c: Not a directory. Choose another directory" in ran.stderr


def test_run_in_profile_mode(tmp_path: Path) -> None:
    load = [str(player_path()), "load", "--collectives", "25"]
    ran = ncclscope("run", "-o", tmp_path / "c", "--mode", "profile", "--", *load)
    assert "25 calls, 0 events, 0 dropped" in ran.stderr


def test_run_with_a_ring(tmp_path: Path) -> None:
    load = [str(player_path()), "load", "--collectives", "25"]
    ran = ncclscope("run", "-o", tmp_path / "c", "--mode", "full", "--ring", "8M", "--", *load)
    assert "25 calls, 7,750 events, 0 dropped" in ran.stderr


def test_a_job_runs_whatever_clocks_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day later by the clock, running or stopped, it is no capture that `prune` may delete."""
    env = recording(tmp_path / "c")
    with start_player("load", "--collectives", 1 << 30, "--rate", 5_000, env=env) as running:
        folder, now = folder_of(tmp_path / "c"), time.time()
        for then in (now - 86_400, now + 86_400):
            monkeypatch.setattr(housekeeping.time, "time", lambda then=then: then)
            assert is_running(folder)
        running.send_signal(signal.SIGSTOP)
        assert is_running(folder)
        assert main(["prune", str(tmp_path), "--keep", "0"]) == 0
        assert folder.exists()
        running.kill()
    assert not is_running(folder)


def test_a_job_of_another_host_whose_clock_was_set_back_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its live page is of yesterday, the file that holds it is not."""
    monkeypatch.setattr(housekeeping, "heartbeat", lambda _: (time.time() - 86_400, False))
    (tmp_path / "live").touch()
    assert is_running(tmp_path, careful=True)
    make_older(tmp_path, 60)
    assert not is_running(tmp_path, careful=True)
