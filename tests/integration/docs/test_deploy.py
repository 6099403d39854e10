"""The files in docs/deploy, taken out of their pages and tried as far as that goes here."""

import configparser
import os
import re
import signal
import subprocess
import sys
import urllib.request
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from ncclscope.native import player_path, plugin_path
from ncclscope.simulation.scenario import Scenario
from ncclscope.simulation.scenario_lines import scenario_text
from tests.support.paths import ROOT
from tests.support.player import ncclscope as command
from tests.support.waiting import eventually

PAGES = ROOT / "docs" / "deploy"
BIN = Path(sys.executable).parent
INSTALLED = "/opt/ncclscope/libnccl-profiler-ncclscope.so"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a /dev/shm: needs root")
LOAD = [str(player_path()), "load", "--collectives", "50", "--channels", "2", "--steps", "1"]


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows, by name."""
    text = (PAGES / f"{page}.md").read_text()
    return dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", text, re.M | re.S))


def environment(**variables: str | Path) -> dict[str, str]:
    """Nothing of NCCL or of launchers but what is given; our commands are found."""
    unwanted = ("NCCL", "SLURM", "TORCHELASTIC", "RANK", "WORLD_SIZE")
    base = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    found = base | {name: str(value) for name, value in variables.items()}
    return found | {"PATH": f"{found.get('STANDINS', BIN)}:{BIN}:{os.environ['PATH']}"}


def shell(text: str, *words: str | Path, shell: str = "sh", **variables: str | Path) -> Any:
    """Runs a file's text."""
    return subprocess.run(
        [shell, "-c", text, "file", *map(str, words)], env=environment(**variables),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def stand_in(directory: Path, name: str, text: str) -> Path:
    """A command of that name, found before all others."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return directory


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_every_page_says_how_it_was_tried_and_its_scripts_parse(page: str) -> None:
    text = (PAGES / f"{page}.md").read_text()
    assert page == "README" or "\n## How it was tested\n" in text
    for name, content in files_of(page).items():
        if name.endswith((".sh", ".sbatch")):
            parsed = subprocess.run(["bash", "-n"], input=content, capture_output=True, text=True)
            assert not parsed.stderr, name
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert link.startswith("https://") or (PAGES / link).exists(), link


# ---- Slurm ----
def exported(printed: str) -> dict[str, str]:
    """As Slurm reads a TaskProlog's output."""
    pairs = [
        line.removeprefix("export ") for line in printed.splitlines() if line.startswith("export ")
    ]
    return dict(pair.split("=", 1) for pair in pairs)  # type: ignore[misc]


def test_task_prolog(tmp_path: Path) -> None:
    prolog = files_of("slurm")["task_prolog.sh"].replace("/scratch/", f"{tmp_path}/")
    job = {"SLURM_JOB_ID": "42", "USER": "somebody"}
    assert shell(prolog, **job).stdout == ""  # not installed: nothing happens
    here = prolog.replace(INSTALLED, str(plugin_path()))
    assert shell(here, NCCL_PROFILER_PLUGIN="other", **job).stdout == ""
    assert shell(here, NCCLSCOPE_DISABLE="1", **job).stdout == ""
    running = []
    for rank in range(8):
        printed = shell(here, **job, SLURM_PROCID=str(rank))
        assert printed.returncode == 0
        env = environment(**job, SLURM_PROCID=str(rank), **exported(printed.stdout))
        running.append(subprocess.Popen(LOAD, env=env, cwd="/", stdout=subprocess.DEVNULL))
    assert [one.wait(timeout=60) for one in running] == [0] * 8
    (capture,) = tmp_path.glob("somebody/*")
    assert capture.name == "ncclscope-42-0"
    assert len(list(capture.glob("*/tally"))) == 8


def test_sbatch(tmp_path: Path) -> None:
    """With a signal in the middle, which must not end the job."""
    standins = stand_in(tmp_path / "bin", "srun", '#!/bin/sh\nexec "$@"\n')
    scenario = tmp_path / "scenario"
    scenario.write_text(scenario_text(Scenario(name="job", ranks=2, steps=100, compute_ms=50)))
    batch = subprocess.Popen(
        ["bash", "-c", files_of("slurm")["job.sbatch"].replace("/scratch/", f"{tmp_path}/"),
         "job.sbatch", sys.executable, "-m", "ncclscope.simulation", str(scenario)],
        env=environment(SLURM_JOB_ID="7", USER="me", STANDINS=standins), cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    eventually(lambda: len(list(tmp_path.glob("me/ncclscope-7-0/*/live"))) == 2)
    batch.send_signal(signal.SIGUSR1)
    printed, said = batch.communicate(timeout=120)
    assert batch.returncode == 0, said
    assert "ok: 2 processes, all alive" in printed
    assert "2 processes; 200 calls" in said  # all steps were made
    assert (tmp_path / "diagnosis-7.txt").stat().st_size > 0


def after_a_kill(tmp_path: Path, script: str) -> list[Path]:
    """A process of a private /dev/shm killed, then the script; what was brought in."""
    capture = tmp_path / "c"
    setup = "mount -t tmpfs -o size=600m tmpfs /dev/shm; tail -1 /proc/mounts | grep -q '/dev/shm tmpfs'"
    load = [str(player_path()), "load", "--collectives", "5000", "--die-at", "9000"]
    text = f'{setup}\n"$@" || true\n{script}'
    variables = {
        "NCCL_PROFILER_PLUGIN": plugin_path(),
        "NCCLSCOPE_DIR": capture,
        "NCCLSCOPE_MODE": "full",
    }
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-ec", text, "sh", *load], env=environment(**variables),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return list(capture.glob("*/arena"))


@needs_root
def test_epilog(tmp_path: Path) -> None:
    epilog = files_of("slurm")["epilog.sh"]
    assert shell(epilog).returncode == 0  # nothing is installed: the node must not be drained
    here = epilog.replace("/opt/ncclscope/venv/bin/ncclscope", str(BIN / "ncclscope"))
    assert len(after_a_kill(tmp_path, here)) == 1


def test_the_unit_runs_a_command_that_there_is() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(files_of("slurm")["ncclscope-serve.service"])
    words = unit["Service"]["ExecStart"].split()
    assert words[1] == "serve"
    printed = command("serve", *words[2:-1], Path("/no/such/place"))
    assert "cannot write metrics to /no/such/place" in printed.stderr  # all else is understood


def test_slurms_files_fit_each_other() -> None:
    """Captures that the prolog and the batch script make are those that the unit serves."""
    files = files_of("slurm")
    made = re.findall(r"^capture=(\S+(?: -un\)\S*)?)$", "\n".join(files.values()), re.M)
    assert len(made) == 2
    env = {"USER": "me", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    named = {shell(f"echo {one}", **env).stdout.strip() for one in made}
    assert named == {"/scratch/me/ncclscope-7-1"}
    pattern = files["ncclscope-serve.service"].partition(" serve ")[2].split()[0]
    assert all(fnmatch(name, pattern) for name in named)
    # What is below /opt is what the page of installation puts there.
    install = files_of("README")["install.sh"]
    places = set(re.findall(r"/opt/ncclscope/[\w./-]+", "\n".join(files.values())))
    assert places == {INSTALLED, "/opt/ncclscope/venv/bin/ncclscope"}
    assert "python3 -m venv /opt/ncclscope/venv\n" in install
    assert '/bin/ncclscope plugin-path)" /opt/ncclscope/\n' in install


# ---- Kubernetes ----
def pod() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(files_of("kubernetes")["pod.yaml"])
    return found


def test_captures_outlive_the_pod() -> None:
    claim = yaml.safe_load(files_of("kubernetes")["captures.yaml"])
    (volume,) = (one for one in pod()["spec"]["volumes"] if one["name"] == "captures")
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    # Whatever else the page offers is a volume, too.
    text = (PAGES / "kubernetes.md").read_text()
    for offered in re.findall(r"^\| `(\w+: \{.*?\})` \|", text, re.M):
        assert isinstance(yaml.safe_load(offered), dict)


@pytest.mark.parametrize("page", ["dask", "kubernetes"])
def test_the_api_knows_what_is_shown(page: str, tmp_path: Path) -> None:
    validate = BIN / "kubernetes-validate"
    if not validate.exists():
        pytest.skip("kubernetes-validate is not installed")
    of_others = "podmonitor.yaml"  # the Prometheus operator's
    shown = {name: text for name, text in files_of(page).items() if name.endswith(".yaml")}
    for name in shown.keys() - {of_others}:
        (tmp_path / name).write_text(shown[name])
    files = sorted(tmp_path.iterdir())
    done = subprocess.run([validate, "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert files


def test_dask_on_kubernetes() -> None:
    """Pods find the scheduler, see the captures at one path, and run what is installed."""
    files = {name: text for name, text in files_of("dask").items() if name.endswith(".yaml")}
    service, scheduler, workers = (yaml.safe_load(files[name]) for name in files)
    pods = [one["spec"]["template"] for one in (scheduler, workers)]
    assert service["spec"]["selector"] == pods[0]["metadata"]["labels"]
    claim = yaml.safe_load(files_of("kubernetes")["captures.yaml"])["metadata"]["name"]
    for pod_template in pods:
        (volume,), (container,) = (pod_template["spec"][part] for part in ("volumes", "containers"))
        assert volume["persistentVolumeClaim"]["claimName"] == claim
        assert container["volumeMounts"] == [{"name": "captures", "mountPath": "/captures"}]
        asked = [BIN / container["command"][0], *container["command"][1:], "--help"]
        assert subprocess.run(asked, capture_output=True).returncode == 0
    address = f"tcp://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert address in pods[1]["spec"]["containers"][0]["command"]


def test_what_a_pod_refers_to_exists() -> None:
    spec = pod()["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    containers = {one["name"]: one for one in spec["initContainers"] + spec["containers"]}
    for container in containers.values():
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    sidecar = containers["ncclscope-serve"]
    shared = {mount["mountPath"] for mount in sidecar["volumeMounts"]}
    assert shared <= {mount["mountPath"] for mount in containers["training"]["volumeMounts"]}
    monitor = yaml.safe_load(files_of("kubernetes")["podmonitor.yaml"])
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    (port,) = sidecar["ports"]
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]
    assert sidecar["readinessProbe"]["httpGet"]["port"] == port["name"]


def test_a_pods_commands(tmp_path: Path) -> None:
    plugin, sidecar = pod()["spec"]["initContainers"]
    (training,) = pod()["spec"]["containers"]
    target = tmp_path / "opt"
    target.mkdir()
    copied = shell(plugin["command"][2].replace("/opt/ncclscope", str(target)))
    assert copied.returncode == 0, copied.stderr
    values = {one["name"]: one["value"] for one in training["env"] if "value" in one}
    captures = tmp_path / "captures"
    captures.mkdir()
    env = {
        "NCCL_PROFILER_PLUGIN": values["NCCL_PROFILER_PLUGIN"].replace(
            "/opt/ncclscope", str(target)
        ),
        "NCCLSCOPE_DIR": values["NCCLSCOPE_DIR"].replace("/captures", str(captures)),
    }
    words = [word.replace("/captures", str(captures)) for word in sidecar["command"]]
    words = [*(word.replace("0.0.0.0", "127.0.0.1") for word in words), "--port", "0"]
    job = subprocess.Popen(
        [str(player_path()), "load", "--collectives", "100000", "--rate", "2000"],
        env=environment(**env),
    )
    served = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert served.stderr
        found = re.search(r"http://[^/]+", served.stderr.readline())
        assert found

        def metrics() -> str:
            with urllib.request.urlopen(f"{found[0]}/metrics", timeout=60) as answer:
                return str(answer.read().decode())

        eventually(lambda: 'ncclscope_operations_total{run="training"' in metrics())
        with urllib.request.urlopen(f"{found[0]}/healthz", timeout=60) as answer:
            assert answer.status == 200
    finally:
        job.kill()
        job.wait()
        served.terminate()
        served.communicate(timeout=60)


@needs_root
def test_pre_stop(tmp_path: Path) -> None:
    sidecar = pod()["spec"]["initContainers"][1]
    words = sidecar["lifecycle"]["preStop"]["exec"]["command"]
    assert len(after_a_kill(tmp_path, " ".join(words))) == 1


# ---- torchrun ----
TORCHRUN = """#!/bin/sh
# Two ranks with torchrun's variables.
for rank in 0 1; do
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=$JOB "$LOADS" load --collectives 50 &
done
wait
"""


@pytest.mark.parametrize("name", ["one-node.sh", "each-node.sh", "environment.sh"])
def test_torchrun(tmp_path: Path, name: str) -> None:
    standins = stand_in(tmp_path / "bin", "torchrun", TORCHRUN)
    text = files_of("torchrun")[name].replace("/shared/captures", str(tmp_path / "captures"))
    ran = shell(
        f"cd {tmp_path}; {text}", "train.py", STANDINS=standins, LOADS=player_path(), GPUS="2",
        NODES="1", HEAD="localhost", JOB="job7",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (capture,) = {path.parent.parent for path in tmp_path.glob("**/tally")}
    assert name == "one-node.sh" or capture == tmp_path / "captures" / "job7"
    assert len(list(capture.glob("*/tally"))) == 2


# ---- containers ----
@needs_root
def test_sixty_four_megabytes(tmp_path: Path) -> None:
    setup = (
        "mount -t tmpfs -o size=64m tmpfs /dev/shm; tail -1 /proc/mounts | grep -q '/dev/shm tmpfs'"
    )
    text = (
        f"{setup}\n{files_of('containers')['doctor.sh'].strip()} || true\n" + '"$@"; ls -A /dev/shm'
    )
    variables = {
        "NCCL_PROFILER_PLUGIN": plugin_path(),
        "NCCLSCOPE_DIR": tmp_path / "c",
        "NCCLSCOPE_MODE": "full",
    }
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-ec", text, "sh", *LOAD], env=environment(**variables),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"64 MiB", ran.stdout), ran.stdout
    assert ran.stdout.rstrip().endswith("0 starts refused")  # and nothing of ours in /dev/shm
    report = command("report", tmp_path / "c")
    assert "50 calls, 50 operations" in report.stdout
    assert "nothing dropped" in " ".join(report.stdout.split())


DOCKER = """#!/bin/sh
# Hands variables on, and finds volumes by their names inside.
volumes=; shift
while [ "$1" != image ]; do
  case $1 in
    -v) volumes="$volumes $2"; shift ;;
    -e) export "$2"; shift ;;
    --gpus|--user) shift ;;
    --shm-size=*) ;;
    *) echo "unknown $1" >&2; exit 1 ;;
  esac
  shift
done
shift
inside() {
  found=$1
  for volume in $volumes; do
    from=${volume%%:*}; rest=${volume#*:}; to=${rest%:ro}
    case $found in "$to"*) found=$from${found#"$to"} ;; esac
  done
  printf %s "$found"
}
for name in NCCL_PROFILER_PLUGIN NCCLSCOPE_DIR; do
  eval "value=\\${$name-}"
  [ -z "$value" ] || export "$name=$(inside "$value")"
done
for word; do shift; set -- "$@" "$(inside "$word")"; done
exec "$@"
"""


@pytest.mark.parametrize("name", ["docker.sh", "docker-plugin.sh"])
def test_docker(tmp_path: Path, name: str) -> None:
    standins = stand_in(tmp_path / "bin", "docker", DOCKER)
    stand_in(standins, "torchrun", TORCHRUN)
    text = files_of("containers")[name]
    ran = shell(f"cd {tmp_path}; {text}", STANDINS=standins, LOADS=player_path(), JOB="job7")
    assert ran.returncode == 0, ran.stderr
    assert len(list((tmp_path / "captures" / "job").glob("*/tally"))) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "captures"}


# ---- /etc/nccl.conf ----
def test_nccl_conf(tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text(files_of("nccl-conf")["nccl.conf"].replace(INSTALLED, str(plugin_path())))
    lines = [line for line in conf.read_text().splitlines() if not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines)
    ran = subprocess.run(
        LOAD, env=environment(SLURM_JOB_ID="9", **settings), cwd=tmp_path, timeout=60, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.returncode == 0
    assert list(tmp_path.glob("ncclscope-9/*/tally"))
    assert not list(tmp_path.glob("ncclscope-9/*/log.*"))  # profile keeps none
    said = shell("ncclscope doctor", NCCL_CONF_FILE=conf).stdout
    assert f"NCCL_PROFILER_PLUGIN is this plugin, by {conf}" in said
