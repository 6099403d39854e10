"""The order of the timeline's lanes."""

from ncclscope.web.scene import ProcessLabels, SceneBuilder, SceneClock


def _labels(host: str, rank: int) -> ProcessLabels:
    return ProcessLabels(
        host=host, node=host, node_note="", folder=f"{host}.1.{rank}", pid=1, gpu="", fate="",
        rank=rank, last_ns=0, threads={}, communicators={}, clock=SceneClock(),
    )  # fmt: skip


def test_hosts_are_in_the_order_of_their_numbers() -> None:
    hosts = ["node10", "node2", "gpu-7-b", "node1", "gpu-07-a", "9" * 5000, "node1"]
    labels = [_labels(host, rank) for rank, host in enumerate(hosts)]
    root = SceneBuilder(labels, None).root
    titles = [lane.title for lane in root.children.values()]
    assert titles == ["9" * 5000, "gpu-07-a", "gpu-7-b", "node1", "node2", "node10"]
    ranks = [lane.title for lane in root.children["node1"].children.values()]
    assert ranks == ["rank 3", "rank 6"]
