"""Scenarios: what is written is what is read, and mistakes are named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ncclscope.errors import UsageError
from ncclscope.simulation.scenario import (
    SIMULATED_RELEASES,
    BandwidthDrop,
    Call,
    Communicators,
    Dies,
    GpuClock,
    HostClock,
    Late,
    Never,
    Scenario,
    SlowLink,
    Wrong,
)
from ncclscope.simulation.scenario_files import parse_toml, read_scenario, toml_text
from ncclscope.simulation.scenario_lines import parse_scenario, scenario_text
from tests.support.paths import ROOT

EVERYTHING = Scenario(
    name="everything",
    release="2.32",
    ranks=8,
    ranks_per_host=4,
    channels=4,
    latency_us=20.5,
    bandwidth_gb_s=0.5,
    steps=3,
    compute_ms=1.5,
    give_up_s=0,
    communicators=(Communicators("tp", 4), Communicators("dp", 2, 4), Communicators("world")),
    calls=(Call("tp", "AllReduce", 1 << 20, "bfloat16"), Call("dp", "Broadcast", 100, root=1)),
    late=(Late(3, 12.5, 1, 2, 1),),
    never=(Never(1, 2),),
    wrong=(Wrong(2, 1, 1, "Reduce", 7, "int8", 0),),
    dies=(Dies(5, 2, 1, 1),),
    slow_links=(SlowLink(ranks=(1, 2)), SlowLink(hosts=(0, 1), factor=3)),
    bandwidth_drops=(BandwidthDrop(500, 8),),
    host_clocks=(HostClock(1, -2.5, 30),),
    gpu_clocks=(GpuClock(3, 7),),
)


@pytest.mark.parametrize("scenario", [EVERYTHING, Scenario()])
def test_text_and_back(scenario: Scenario) -> None:
    assert parse_scenario(scenario_text(scenario)) == scenario
    assert parse_toml(toml_text(scenario)) == scenario


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rank = 4", "there is no key rank"),
        ("ranks = 'four'", "ranks is a whole number, and 'four' is none"),
        ("ranks = true", "ranks is a whole number"),
        ("late = 3", "late is a table: write [[late]]"),
        ("[[late]]\nrank = 1", "ms of late is missing"),
        ("[[late]]\nrank = 1\nms = 2\nwhy = 3", "why of late is none of rank, ms"),
        ("[[late]]\nrank = 9\nms = 2", "there is no rank 9"),
        ("[[slow_link]]\nhosts = '1,2'", "hosts is a list of numbers"),
        ("[[call]]\ncommunicator = 'world'\nfunction = 'AllReduce'\nsize = '1Q'", "not an amount"),
        ("ranks = \nsteps = 1", "at line 1"),
    ],
)
def test_mistakes_in_toml(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match="cannot read the scenario") as raised:
        parse_toml(text)
    assert complaint in str(raised.value)


def test_packaged_scenarios_are_read_by_their_names() -> None:
    files = sorted((ROOT / "src/ncclscope/simulation").glob("*.toml"))
    assert len(files) == 6
    for file in files:
        assert read_scenario(Path(file.name)).name == file.stem.replace("_", "-")


def test_the_toml_of_the_page_is_right() -> None:
    page = (ROOT / "docs/simulation.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)
    assert parse_toml(text).late == (Late(5, 20, 10),)


def test_old_files_are_read_and_turned_into_toml(tmp_path: Path) -> None:
    old = tmp_path / "old.scenario"
    old.write_text("ranks = 1\nsteps = 0\nrange = step%20{step} 0 0\n")
    command = [sys.executable, "-m", "ncclscope.simulation"]
    done = subprocess.run([*command, old], capture_output=True, text=True, check=True)
    assert f"--to-toml {old}` prints it as TOML" in done.stderr
    text = subprocess.check_output([*command, "--to-toml", old], text=True)
    assert parse_toml(text) == read_scenario(old)
    wrong = subprocess.run([*command, "--nonsense"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2


def test_words_and_values_in_order() -> None:
    text = (
        "ranks = 4  # of them\n\ncommunicator = tp 2\ncall = tp AllReduce 64K bfloat16\nlate = 1 20"
    )
    scenario = parse_scenario(text)
    assert scenario.communicators == (Communicators("tp", 2),)
    assert scenario.calls == (Call("tp", "AllReduce", 65536, "bfloat16"),)
    assert scenario.late == (Late(1, 20.0),)


def test_groups() -> None:
    assert Communicators("tp", 2).groups(8) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert Communicators("dp", 2, 2).groups(8) == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert Communicators("pp", 2, 4).groups(8) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert Communicators("world").groups(3) == [(0, 1, 2)]


def test_counts_are_as_in_nccl_tests() -> None:
    assert Call("world", "AllReduce", 1024).count(4) == 256
    assert Call("world", "AllGather", 1024).count(4) == 64
    assert Call("world", "ReduceScatter", 1024, "bfloat16").count(4) == 128
    assert Call("world", "AllReduce", 0).count(4) == 1


def test_who_calls_what_and_when() -> None:
    assert EVERYTHING.late_ms(3, 1, 1) == 12.5
    assert EVERYTHING.late_ms(3, 0, 1) == EVERYTHING.late_ms(3, 1, 0) == 0
    assert EVERYTHING.call_of(2, 1, 1) == Call("dp", "Reduce", 7, "int8", 0)
    assert EVERYTHING.call_of(2, 2, 1) == EVERYTHING.calls[1]
    assert (EVERYTHING.hosts, EVERYTHING.host_of(5)) == (2, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rank = 4", "scenario:1: there is no key rank"),
        ("ranks = four", "scenario:1: ranks is a number, and four is none"),
        ("\nlate = rank=1", "scenario:2: ms is missing"),
        ("late = rank=1 ms=2 why=3", "why is none of rank, ms"),
        ("late = rank=9 ms=2", "there is no rank 9"),
        ("call = tp AllReduce 1M", "there is no communicator tp"),
        ("call = world AllSum 1M", "function is one of"),
        ("call = world AllReduce 1Q", "not an amount"),
        ("call = world AllReduce 1M float", "there is no datatype float"),
        ("ranks = 6\ncommunicator = tp 4\ncall = tp AllReduce 1M", "6 ranks do not divide"),
        ("slow_link = ranks=1", "slow_link has ranks=A,B"),
        ("release = 2.29", "release is one of"),
        ("release = 2.26\nnever_joins = 1 world", "never_joins needs release 2.27"),
        ("bandwidth_gb_s = 0", "above 0"),
    ],
)
def test_mistakes(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match="cannot read the scenario") as raised:
        parse_scenario(text)
    assert complaint in str(raised.value)


def test_releases_and_interfaces_are_those_of_the_simulated_nccl() -> None:
    source = (ROOT / "native/harness/sim/settings.c").read_text()
    rows = re.findall(r'\{"(\d\.\d+)", "[\d.]+", \d+, (\d)\}', source)
    assert tuple(name for name, _ in rows) == SIMULATED_RELEASES
    for name, interface in rows:
        assert Scenario(release=name).interface == int(interface)
