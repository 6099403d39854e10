"""`ncclscope run` in front of real launchers and of single ranks."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ncclscope.capture.contents import ProcessContents
from ncclscope.capture.reader import open_capture
from ncclscope.cli.run_summary import contents_lines
from ncclscope.native import player_path, plugin_path
from ncclscope.simulation.scenario import Late, Scenario
from tests.support.callback_script import every_event
from tests.support.player import dump, ncclscope, write_transcript
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually
from tests.support.work_counts import imported_modules

PLAYER = str(player_path())
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
needs_mpirun = pytest.mark.skipif(
    not shutil.which("mpirun"), reason="mpirun (openmpi-bin) is missing"
)


def without_job() -> dict[str, str]:
    return {
        n: v for n, v in os.environ.items() if not n.startswith(("NCCL", "SLURM", "OMPI", "PMI"))
    }


def test_exit_codes_come_back(tmp_path: Path) -> None:
    for code in (0, 3, 255):
        ran = ncclscope("run", "-o", tmp_path / "c", "--", "sh", "-c", f"exit {code}")
        assert ran.returncode == code
    killed = ncclscope("run", "-o", tmp_path / "c", "--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == 128 + 9
    missing = ncclscope("run", "--", "/no/such/program")
    assert missing.returncode == 127
    assert "cannot run /no/such/program: No such file" in missing.stderr
    assert "Traceback" not in missing.stderr
    forbidden = ncclscope("run", "--", "/etc/passwd")
    assert forbidden.returncode == 126
    assert ncclscope("run").returncode == 2


def test_exit_codes_come_back_where_nobody_hears_of_children(tmp_path: Path) -> None:
    """Launchers that ignore SIGCHLD hand that on, and the kernel then keeps no exit code."""
    command = [sys.executable, "-m", "ncclscope", "run", "-o", tmp_path / "c", "--"]
    ran = subprocess.run(
        [*command, "sh", "-c", "exit 3"], timeout=60, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    assert ran.returncode == 3


def test_a_second_run_into_a_capture_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    """No launcher counts here: the same ranks come again, and never met the first ones."""
    for ranks in (4, 2):
        scenario = Scenario(ranks=ranks, steps=6, late=(Late(rank=1, ms=30),))
        with running(scenario, tmp_path / "c") as job:
            assert job.wait(60) == 0
    said = (tmp_path / "c.log").read_text()
    assert "c holds 4 processes of an earlier run already; this one becomes another" in said
    assert "ncclscope: 2 processes; 12 calls" in said
    report = json.loads(ncclscope("report", tmp_path / "c", "--json").stdout)
    assert report["completeness"]["processes"] == {"found": 2, "expected": 2}
    assert report["completeness"]["calls"] == 36
    assert any("2 attempts of the job" in note for note in report["completeness"]["notes"])
    ranks_of = {comm["name"]: comm["ranks"] for comm in report["communicators"]}
    assert ranks_of == {"world": 2, "world@0": 4}
    first = json.loads(ncclscope("diagnose", tmp_path / "c", "--json").stdout)["findings"][0]
    assert (first["family"], first["ranks"]) == ("straggler", [1])
    assert re.search(r"is late [1-6] times", first["sentence"]), "of the six of the last attempt"
    assert "ok: 2 processes" in ncclscope("status", tmp_path / "c").stdout


def test_arguments_pass_untouched(tmp_path: Path) -> None:
    words = ["-x", "--mode", "full", "--", "a b", ""]
    ran = ncclscope(
        "run", "-q", "--", sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words,
        cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(ran.stdout) == words
    assert ran.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_forwarded(number: signal.Signals, tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)\n"
    )
    command = [sys.executable, "-m", "ncclscope", "run", "-q", "--", sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(number)
        assert running.wait(20) == 42


def test_run_imports_little(tmp_path: Path) -> None:
    """`run` stands before every rank of a job, and imports are what its start costs.

    benchmarks/start_and_exit.py has the time.
    """
    script = Path(sys.executable).with_name("ncclscope")
    modules = imported_modules([script, "run", "--", "true"], tmp_path)
    assert "ncclscope.launch.child" in modules
    assert not modules & {"numpy", "duckdb", "asyncio", "http.client", "json", "logging", "socket"}
    assert len(modules) < 120


def test_a_single_process(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    load = [PLAYER, "load", "--collectives", "50"]
    ran = ncclscope("run", "-o", capture, "--mode", "full", "--", *load, env=without_job())
    assert ran.returncode == 0, ran.stderr
    assert "1 process; 50 calls" in ran.stderr
    assert "0 dropped" in ran.stderr
    assert f"ncclscope report {capture}\n" in ran.stderr.partition("next: ")[2]
    assert "made" in ran.stdout


@pytest.mark.parametrize("end", [[], ["--end", "kill"]])
def test_what_went_wrong_is_in_the_summary(end: list[str], tmp_path: Path) -> None:
    """Whether the note reached the disk or was brought in from memory."""
    load = [PLAYER, "load", "--collectives", "5", *end]
    chain = f"/no/{'such/' * 12}plugin.so"
    ran = ncclscope("run", "-o", tmp_path / "c", "--chain", chain, "--", *load, env=without_job())
    note = f"           note: NCCLSCOPE_CHAIN={chain} is left out: {chain}: cannot open shared"
    assert sum(line.startswith(note) for line in ran.stderr.splitlines()) == 1, ran.stderr


def test_many_notes_are_counted(tmp_path: Path) -> None:
    processes = [ProcessContents("a.1.2", note_texts={n: bytearray(b"\x1b[0m!")}) for n in range(5)]
    lines = contents_lines(tmp_path, processes)
    assert lines[1:5] == ["           note: \\x1b[0m!"] * 3 + ["           and 2 more notes"]


def test_a_place_that_cannot_be_written_is_said_before_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = ["sh", "-c", "echo now >&2; exit 3"]
    ran = ncclscope("run", "-o", tmp_path / "file" / "c", "--", *job)
    assert ran.returncode == 3
    first, cost, third = ran.stderr.splitlines()[:3]
    assert first == (
        f"ncclscope: cannot record into {tmp_path}/file/c from this host: {tmp_path}/file is no "
        "directory. Choose another directory with -o"
    )
    assert cost.startswith("ncclscope: every operation is timed, which costs up to 2 times")
    assert "--gpu-timing sampled avoids it" in cost
    assert third == "now"
    assert "Traceback" not in ran.stderr
    quick = ncclscope("run", "-o", tmp_path / "d", "--gpu-timing", "sampled", "--", *job)
    assert quick.stderr.splitlines()[0] == "now"
    sampled = os.environ | {"NCCLSCOPE_GPU_TIMING": "sampled"}  # `run` passes it on
    assert ncclscope("run", "-o", tmp_path / "e", "--", *job, env=sampled).stderr.startswith("now")


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    ran = ncclscope("run", "-o", tmp_path / "c", "--", "true", env=without_job())
    assert ran.returncode == 0
    assert "nothing recorded" in ran.stderr


def test_a_plugin_of_somebody_else_is_named(tmp_path: Path) -> None:
    env = without_job() | {"NCCL_PROFILER_PLUGIN": "inspector"}
    ran = ncclscope("run", "-o", tmp_path / "c", "--", "true", env=env)
    assert "takes the place of NCCL_PROFILER_PLUGIN=inspector (--chain inspector" in ran.stderr
    ran = ncclscope("run", "--", "true", cwd=tmp_path, env=env | {"NCCL_PROFILER_PLUGIN": "none"})
    assert "takes the place of NCCL_PROFILER_PLUGIN=none\n" in ran.stderr


def test_killed_ranks_are_summed_up(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    load = [PLAYER, "load", "--collectives", "50", "--die-at", "20000"]
    ran = ncclscope("run", "-o", capture, "--mode", "full", "--", *load, env=without_job())
    assert ran.returncode == 137
    assert "1 process, 1 of them ended abruptly;" in ran.stderr
    events = dump(capture)
    assert f"{len(events) - 1:,} events" in ran.stderr
    assert len(list(capture.glob("*/arena"))) == 1, "shared memory was brought in"


@needs_mpirun
def test_in_front_of_mpirun(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    load = [PLAYER, "load", "--collectives", "20"]
    ran = ncclscope("run", "-o", capture, "--", *MPIRUN, "-np", "3", *load, env=without_job())
    assert ran.returncode == 0, ran.stderr
    assert "3 processes; 60 calls" in ran.stderr
    assert sorted(process.rank for process in open_capture(capture).processes) == [0, 1, 2]


@needs_mpirun
def test_mpirun_hands_the_variables_to_clean_environments(tmp_path: Path) -> None:
    """Ranks on other hosts start with what mpirun forwards by -x and nothing else of ours."""
    arguments = tmp_path / "arguments"
    fake = tmp_path / "mpirun"
    fake.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && exec mpirun.real --version\n'
        f'printf "%s\\n" "$@" > {arguments}\n'
        'exec mpirun.real "$@"\n'
    )
    fake.chmod(0o755)
    (tmp_path / "mpirun.real").symlink_to(str(shutil.which("mpirun")))
    env = without_job() | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["mpirun", *MPIRUN[1:], "-np", "2", "sh", "-c", "echo $NCCLSCOPE_DIR $NCCLSCOPE_MODE"]
    ran = ncclscope("run", "-q", "-o", tmp_path / "c", "--mode", "full", "--", *command, env=env)
    assert ran.stdout.split("\n")[:2] == [f"{tmp_path / 'c'} full"] * 2, ran.stderr
    words = arguments.read_text().split("\n")
    assert words[:6] == [
        "-x", "NCCL_PROFILER_PLUGIN", "-x", "NCCLSCOPE_DIR", "-x", "NCCLSCOPE_MODE",
    ]  # fmt: skip


@needs_mpirun
def test_in_front_of_each_rank_of_mpirun(tmp_path: Path) -> None:
    """All ranks arrive at the same capture, and rank 0 alone sums up."""
    rank = [sys.executable, "-m", "ncclscope", "run", "--", PLAYER, "load", "--collectives", "20"]
    ran = subprocess.run(
        [*MPIRUN, "-np", "3", *rank],
        cwd=tmp_path, env=without_job(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (capture,) = tmp_path.glob("ncclscope-*")
    assert sorted(process.rank for process in open_capture(capture).processes) == [0, 1, 2]
    assert ran.stderr.count("           next: ") == 1


@needs_mpirun
def test_the_bare_plugin_under_mpirun(tmp_path: Path) -> None:
    """Without the command line the plugin finds the same name by itself."""
    env = without_job() | {"NCCL_PROFILER_PLUGIN": str(plugin_path())}
    ran = subprocess.run(
        [*MPIRUN, "-np", "2", PLAYER, "load", "--collectives", "20"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (capture,) = tmp_path.glob("ncclscope-*")
    assert sorted(process.rank for process in open_capture(capture).processes) == [0, 1]


def test_env_prints_what_run_sets(tmp_path: Path) -> None:
    printed = ncclscope("env", "-o", tmp_path / "a b", "--mode", "full", env=without_job())
    shell = subprocess.run(
        ["sh", "-c", f"{printed.stdout}\n{PLAYER} load --collectives 5"],
        capture_output=True, text=True, env=without_job(), check=True,
    )  # fmt: skip
    assert "made" in shell.stdout
    assert len(dump(tmp_path / "a b")) > 100


def test_paths_with_placeholders(tmp_path: Path) -> None:
    env = without_job() | {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": f"{tmp_path}/job-%r-%h%%",
        "RANK": "7",
    }
    subprocess.run([PLAYER, "load", "--collectives", "1"], env=env, check=True, capture_output=True)
    assert (tmp_path / f"job-7-{os.uname().nodename}%").is_dir()


@pytest.mark.parametrize("sign", ["%h", "%p", "%r"])
def test_run_records_into_one_capture(sign: str, tmp_path: Path) -> None:
    ran = ncclscope("run", "-o", f"job-{sign}", "--", "true", cwd=tmp_path, env=without_job())
    assert ran.returncode == 2
    assert f"cannot record into job-{sign}: {sign} would make several captures" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_percent_signs_that_mean_nothing(tmp_path: Path) -> None:
    """In the directory one stands in, or doubled: a name is a name."""
    here = tmp_path / "100%real"
    here.mkdir()
    load = [PLAYER, "load", "--collectives", "5"]
    ran = ncclscope("run", "-o", "a%%p", "--", *load, cwd=here, env=without_job())
    assert "1 process; 5 calls" in ran.stderr
    assert [path.name for path in here.iterdir()] == ["a%%p"]


def test_env_leaves_placeholders_to_the_plugin(tmp_path: Path) -> None:
    here = tmp_path / "100%real"
    here.mkdir()
    printed = ncclscope("env", "-o", "job-%r", cwd=here, env=without_job())
    subprocess.run(
        ["sh", "-c", f"{printed.stdout}\n{PLAYER} load --collectives 5"],
        capture_output=True, env=without_job() | {"RANK": "7"}, check=True,
    )  # fmt: skip
    assert [path.name for path in here.iterdir()] == ["job-7"]


def test_disabled(tmp_path: Path) -> None:
    env = without_job() | {"NCCLSCOPE_DISABLE": "1"}
    ran = ncclscope(
        "run", "-o", tmp_path / "c", "--", PLAYER, "load", "--collectives", "5", env=env
    )
    assert ran.returncode == 0
    assert "nothing recorded" in ran.stderr
    assert not (tmp_path / "c").exists()


def test_secrets_are_not_recorded(tmp_path: Path) -> None:
    script = write_transcript(tmp_path / "t.jsonl", every_event(5).lines)
    secrets = ["--api-key=hunter2", "--token", "hunter2", "PASSWORD=hunter2"]
    env = without_job() | {"NCCL_SECRET_TOKEN": "hunter2"}
    ran = ncclscope("run", "-o", tmp_path / "c", "--", PLAYER, "play", script, *secrets, env=env)
    assert ran.returncode == 0
    for path in (tmp_path / "c").glob("*/*"):
        assert b"hunter2" not in path.read_bytes(), path
    identity = open_capture(tmp_path / "c").processes[0].identity
    assert "--api-key=*** --token *** PASSWORD=***" in identity["command"]
    assert identity["env.NCCL_SECRET_TOKEN"] == "***"


def test_files_are_private(tmp_path: Path) -> None:
    ncclscope("run", "-o", tmp_path / "c", "--", PLAYER, "load", "--collectives", "5")
    ncclscope("decode", tmp_path / "c", umask=0o022)
    ncclscope("report", tmp_path / "c", umask=0o022)
    assert {"manifest.json", "decoded.json"} <= {path.name for path in (tmp_path / "c").rglob("*")}
    for path in [tmp_path / "c", *(tmp_path / "c").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("verb", ["run", "dump", "demo", "env", "plugin-path", ""])
def test_help_needs_no_heavy_import(verb: str) -> None:
    words = [verb, "--help"] if verb else ["--help"]
    printed = ncclscope(*words)
    assert printed.returncode == 0
    assert printed.stdout.startswith("usage: ncclscope")
    assert max(map(len, printed.stdout.splitlines())) <= 100


def test_demo(tmp_path: Path) -> None:
    """A job with a late rank, recorded and reported, without a GPU."""
    ran = ncclscope("demo", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "NCCL 2.28.9 simulated by ncclscope" in ran.stderr
    assert "! this is a simulation: nothing of it was measured" in ran.stdout
    assert "4 of 4 processes, 360 calls, 360 operations" in ran.stdout
    blamed = ran.stdout.partition("ranks by waiting caused")[2].splitlines()[2].split()[0]
    assert blamed == "2"


def test_commands_of_the_demo_can_be_copied(tmp_path: Path) -> None:
    """The script called by its path, as after `make demo`: the shell does not know its name."""
    scripts = str(Path(sys.executable).parent)
    elsewhere = [part for part in os.environ["PATH"].split(":") if part != scripts]
    env = os.environ | {"PATH": ":".join(elsewhere), "BROWSER": "true"}
    script = Path(sys.executable).with_name("ncclscope")

    def shell(words: str) -> tuple[int, str]:
        """Exit code and output; of what serves until it is interrupted, the first line."""
        with subprocess.Popen(
            ["sh", "-c", words.replace(str(script), f"exec {script}", 1)], env=env, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as job:  # fmt: skip
            assert job.stdout is not None
            first = job.stdout.readline()
            if " timeline " in words:
                job.send_signal(signal.SIGINT)
            printed = first + job.stdout.read()
        return job.returncode, printed

    code, shown = shell(f"{script} demo -o 'my demo'")
    assert code == 0
    done = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    after = shown.partition("\nnext: ")[2].splitlines()
    follow = [line.strip() for line in after if "my demo" in line]
    expected = {
        "run": "", "report": "4 of 4 processes", "diagnose": "  rank 2 ",
        "timeline": "http://127.0.0.1:", "dump": "AllReduce",
    }  # fmt: skip
    assert sorted(words.split()[1] for words in done + follow) == sorted(expected)
    for words in [*follow, *reversed(done)]:  # `run` last: it records once more
        code, printed = shell(words)
        assert code == 0, words
        assert expected[words.split()[1]] in printed
    activating = after[-1].partition("after: ")[2].rstrip(")")
    assert shell(f"{activating}; ncclscope --version")[1].startswith("ncclscope ")


def test_a_demo_that_is_ended_takes_its_job_along(tmp_path: Path) -> None:
    (tmp_path / "hangs").write_text("ranks = 2\ngive_up_s = 0\nnever = rank=1 step=1\n")
    command = [sys.executable, "-m", "ncclscope", "demo", "--scenario", "hangs", "-o", "c"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as demo:
        eventually(lambda: len(list(tmp_path.glob("c/*/live"))) == 2)
        demo.send_signal(signal.SIGTERM)
        _, said = demo.communicate(timeout=60)  # nobody holds stderr open any more
    assert demo.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said


def test_demo_of_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "dies").write_text("ranks = 2\nsteps = 3\ndies = rank=1 step=1\n")
    ran = ncclscope("demo", "--scenario", "dies", "-o", "c", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "2 processes ended abruptly: ranks 0, 1" in ran.stdout
    assert "! this is a simulation" in ncclscope("status", "c", cwd=tmp_path).stdout
    (tmp_path / "hangs").write_text("ranks = 2\nsteps = 3\ngive_up_s = 1\nstuck = rank=1 step=1\n")
    assert ncclscope("demo", "--scenario", "hangs", cwd=tmp_path).returncode == 0
    (tmp_path / "wrong").write_text("rank = 2\n")
    ran = ncclscope("demo", "--scenario", "wrong", cwd=tmp_path)
    assert ran.returncode == 2
    assert "cannot read the scenario wrong:1: there is no key rank" in ran.stderr
