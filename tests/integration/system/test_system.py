"""`ncclscope run --system` beside jobs, on machines made up of files."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ncclscope.simulation.scenario import Scenario
from ncclscope.system.counters import GPU, PORT
from ncclscope.system.sample import Sample
from ncclscope.system.sample_files import read_sample_file, sample_files_in
from tests.support.fake_machine import (
    FAKE_NVML,
    HEALTHY_GPU,
    THE,
    gpus_file,
    whole_tree,
    write_journal,
)
from tests.support.metrics_server import fetch, serving
from tests.support.player import ncclscope
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually
from tests.support.writer.scenario import write_scenario

RUN = [sys.executable, "-m", "ncclscope", "run", "--system", "--system-interval", "0.1"]


def made_up(scratch: Path) -> dict[str, str]:
    """An environment in which there are two GPUs."""
    gpus = gpus_file(
        scratch / "gpus.json", HEALTHY_GPU, HEALTHY_GPU | {"throttle": 0x40, "sm_clock": 900}
    )
    return {**os.environ, "PYTHONPATH": str(FAKE_NVML), "FAKE_NVML": str(gpus)}


def samplers(capture: Path) -> list[int]:
    """Processes that sample into a capture, or wait for it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ncclscope.system" in words and os.fsencode(capture) in words:
            found.append(int(folder.name))
    return found


def test_samples_are_part_of_the_capture(tmp_path: Path) -> None:
    capture, root = tmp_path / "c", whole_tree(tmp_path / "root")
    command = [*RUN, "--system-root", str(root), "-o", str(capture), "--", "sleep", "0.7"]
    ran = subprocess.run(command, env=made_up(tmp_path), capture_output=True, text=True, check=True)
    (path,) = sample_files_in(capture)
    journal = read_sample_file(path)
    assert journal.damaged == 0
    assert journal.samples >= 3  # at the start, at the end and in between
    kinds = [device.kind for device, _ in journal.spans[0].layout]
    assert kinds.count(GPU) == 2
    assert kinds.count(PORT) == 1
    assert f"{journal.samples} samples, 2 GPUs, 2 network links" in ran.stderr
    assert not samplers(capture)


def test_it_ends_with_the_job_however_that_ends(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    job = subprocess.Popen([*RUN, "-o", str(capture), "--", "sleep", "100"], start_new_session=True)
    eventually(lambda: sample_files_in(capture))
    job.kill()
    job.wait()
    eventually(lambda: not samplers(capture), 20)
    os.killpg(job.pid, signal.SIGKILL)  # the command, which `run` could not take with it


def test_one_samples_and_another_goes_on(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    words = [*RUN, "-q", "-o", str(capture), "--", "sh", "-c"]
    first = subprocess.Popen([*words, "sleep 100"], start_new_session=True)
    eventually(lambda: sample_files_in(capture))
    second = subprocess.Popen([*words, "sleep 100"], start_new_session=True)
    eventually(lambda: len(samplers(capture)) == 2)
    (file,) = sample_files_in(capture)
    before = file.stat().st_size
    eventually(lambda: file.stat().st_size > before, 20)
    assert len(sample_files_in(capture)) == 1
    os.killpg(first.pid, signal.SIGTERM)
    first.wait(20)
    eventually(lambda: len(sample_files_in(capture)) == 2, 20)
    os.killpg(second.pid, signal.SIGTERM)
    second.wait(20)
    one, other = (read_sample_file(path) for path in sample_files_in(capture))
    both = sorted((list(j.spans[0].monotonic_ns) for j in (one, other)), key=lambda t: t[0])
    assert both[0][-1] < both[1][0]  # one after the other


def test_a_capture_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = ncclscope("run", "--system", "-o", tmp_path / "file" / "c", "--", "sh", "-c", "exit 3")
    assert ran.returncode == 3
    assert "no system counters: cannot create" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_driver_that_hangs_does_not_hang_the_job(tmp_path: Path) -> None:
    environment = made_up(tmp_path)
    os.mkfifo(tmp_path / "never")  # opening it to read waits for a writer
    environment["FAKE_NVML"] = str(tmp_path / "never")
    command = [*RUN, "-o", str(tmp_path / "c"), "--", "sh", "-c", "exit 5"]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 5
    assert "the sampler did not answer" in ran.stderr
    eventually(lambda: not samplers(tmp_path / "c"), 20)


def test_a_sampler_that_was_killed_is_named(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    command = [*RUN, "-o", str(capture), "--", "sleep", "100"]
    job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    eventually(lambda: sample_files_in(capture))
    (sampler,) = samplers(capture)
    os.kill(sampler, signal.SIGKILL)
    os.killpg(job.pid, signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    assert "system counters: the sampler ended with SIGKILL" in said


def test_wrong_options(tmp_path: Path) -> None:
    for words in (("--system-interval", "0"), ("--system-root", tmp_path / "nowhere")):
        ran = ncclscope("run", "--system", *words, "--", "true")
        assert ran.returncode == 2
        assert "Traceback" not in ran.stderr


def test_run_without_it_starts_nothing(tmp_path: Path) -> None:
    ncclscope("run", "-o", tmp_path / "c", "--", "true")
    assert not sample_files_in(tmp_path / "c")
    shutil.rmtree(tmp_path / "c", ignore_errors=True)


def test_samples_are_packed_without_the_hosts_name(tmp_path: Path) -> None:
    write_scenario(tmp_path / "c", Scenario(ranks=2, steps=5), 1)
    (tmp_path / "c" / "system.secret.1.0.jsonl").write_text("half a line of /home/me")
    write_journal(tmp_path / "c", "node0", [Sample(5, 6, {THE: {"cpus": 3}})], boot_id="b")
    assert ncclscope("pack", "c", "--replace-hosts", cwd=tmp_path).returncode == 0
    with tarfile.open(tmp_path / "c.tar.gz") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    texts = {path.name: path.read_text() for path in sample_files_in(tmp_path / "out" / "c")}
    assert list(texts) == ["system.host1.1.0.jsonl"]
    packed = read_sample_file(tmp_path / "out" / "c" / "system.host1.1.0.jsonl")
    assert (packed.host, packed.samples, packed.damaged) == ("host1", 1, 0)
    assert not any("node0" in text for text in texts.values())


def test_from_the_sampler_to_metrics_and_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that runs, a GPU that is hot from its start on: seen by `serve`, named by `diagnose`."""
    for name, value in made_up(tmp_path).items():
        monkeypatch.setenv(name, value)
    capture, root = tmp_path / "c", whole_tree(tmp_path / "root")
    options = ("--system", "--system-interval", "0.1", "--system-root", str(root))
    with running(Scenario(ranks=2, steps=100_000, compute_ms=20), capture, *options):
        eventually(lambda: sample_files_in(capture) and list(capture.glob("*/tally")))
        # Were it to sample by itself, it would find another machine.
        with serving(capture, "--system", "--system-root", tmp_path) as url:
            hot = 'gpu="1",reason="HW thermal slowdown"} 1'
            text = eventually(lambda: hot in (page := fetch(f"{url}/metrics")[2]) and page)
            assert 'link="mlx5_0/1"' in str(text)
        eventually(lambda: read_sample_file(sample_files_in(capture)[0]).samples > 15)
    found = json.loads(ncclscope("diagnose", "--json", capture).stdout)["findings"]
    (slowed,) = [one for one in found if one["family"] == "machine" and one["severity"] != "info"]
    assert slowed["kind"] == "slowed GPU"
    assert slowed["sentence"].startswith(f"GPU 1 of {socket.gethostname()} was slowed down 100 %")
