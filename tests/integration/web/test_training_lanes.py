"""Lanes of steps, phases and ranges in the timeline."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.timelines import TimelineClient, all_lanes
from tests.support.writer.training import write_fsdp2


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TimelineClient]:
    write_fsdp2(tmp_path)
    one = TimelineClient(tmp_path)
    yield one
    one.timeline.stop()


def test_a_rank_begins_with_the_lanes_of_its_training(client: TimelineClient) -> None:
    ranks = [lane for lane in all_lanes(client.ask("scene")) if lane["level"] == "rank"]
    for rank in ranks:
        first = rank["children"][0]
        assert first["title"] == "training"
        assert [track["kind"] for track in first["tracks"]] == ["step", "phase"]
        assert [lane["note"] for lane in first["children"]] == ["python3", "pt_autograd_0"]
        assert len(first["children"][0]["tracks"][0]["rows"]) == 3  # ranges inside each other


def test_bars_say_step_phase_text_and_module(client: TimelineClient) -> None:
    titles = [client.ask("item", row=client.rows("step")[0], item=n)["title"] for n in range(4)]
    assert titles == [f"step {number}" for number in range(4)]
    phases = [client.ask("item", row=client.rows("phase")[0], item=n)["title"] for n in range(4)]
    assert phases == ["data", "forward", "backward", "optimizer"]
    texts = {client.ask("item", row=row, item=0)["title"] for row in client.rows("range")}
    assert "FSDP::all_gather (layers.0)" in texts
    operation = client.ask("item", row=client.rows("operation")[0], item=1)
    fields = {field["name"]: field["value"] for field in operation["fields"]}
    assert (fields["step"], fields["phase"], fields["module"]) == (0, "forward", "layers.0")
