"""The single file answers as the server does, on operations by chance."""

import json
import random

import pytest

from ncclscope.model.schema import NONE
from ncclscope.web.kinds import OPERATION
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
from ncclscope.web.single_file import page_data
from tests.support import npm
from tests.support.model_builders import random_model
from tests.support.model_timelines import sort_by_process, timeline_of
from tests.support.single_file import WEB, ask_file, compare_answers


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    npm.install(WEB, "THE SINGLE FILE IS NOT COMPARED WITH THE SERVER")


def random_timeline(seed: int) -> Timeline:
    """Operations of all sources, states and communicators, some with equal starts and no size."""
    made = sort_by_process(random_model(1_500, seed))
    operations, draw = made.tables["operations"], random.Random(seed)
    for row in draw.sample(range(1_500), 100):
        operations["size_bytes"][row] = NONE
        operations["sequence"][row] = draw.randrange(20)
    operations["start_ns"][10:700:7] = operations["start_ns"][9:699:7]
    made.communicator_names[1:] = ["Tensor <b>é", "world"]  # two of one name
    return timeline_of(made)


@pytest.mark.parametrize("seed", range(4))
def test_the_single_file_answers_as_the_server_does(seed: int) -> None:
    counts = compare_answers(random_timeline(seed), seed)
    assert min(counts["matches"], counts["groups"]) > 100, "the requests find something"


def test_lines_and_the_overview_agree() -> None:
    timeline = random_timeline(9)
    routes, scene = Routes(timeline), timeline.scene
    rows = [number for number, row in enumerate(scene.rows) if row.kind == OPERATION]
    zoom = 24
    line, overview = ask_file(page_data(timeline), [["line", zoom, 1, rows], ["overview", 300]])
    query = {"z": str(zoom), "i": "1", "rows": ",".join(map(str, rows))}
    served = memoryview(routes("api/line", query).body).cast("f").tolist()
    assert line == pytest.approx(served, rel=1e-3, abs=1e-4)
    assert sum(line) > 0
    busy = json.loads(routes("api/overview", {"w": "300"}).body)["busy"]
    assert overview["busy"] == pytest.approx(busy, abs=0.01)
