"""What GPU timing costs, in sentences."""

import pytest

from ncclscope.capture.contents import ProcessContents
from ncclscope.cli.run_summary import timing_lines
from ncclscope.nccl.gpu_timing import Spans, kernel_sentence

WITHIN, BETWEEN = Spans(between_hosts=False), Spans(within_hosts=False)


def test_the_cost_depends_on_release_and_topology() -> None:
    assert "with NCCL 2.30.7 up to 2 times the time" in kernel_sentence((2, 30, 7), WITHIN)
    assert "2.3 and 4 times in CUDA graphs" in kernel_sentence((2, 30, 7), WITHIN)
    assert "up to 1.4 times" in kernel_sentence((2, 32, 3), WITHIN)
    assert "4 and 5 times in CUDA graphs" in kernel_sentence((2, 32, 3), WITHIN)
    assert "between hosts" not in kernel_sentence((2, 28, 9), WITHIN)
    between = kernel_sentence((2, 28, 9), BETWEEN)
    assert "1.06 times" in between
    assert "within a host" not in between
    assert all(place in kernel_sentence() for place in ("within a host", "between hosts"))


@pytest.mark.parametrize("spans", [WITHIN, BETWEEN, Spans()])
def test_the_way_out_is_one_that_the_release_has(spans: Spans) -> None:
    assert kernel_sentence((2, 28, 9), spans).endswith(". --gpu-timing sampled avoids it")
    for release in ((2, 27, 7), (2, 26, 5)):
        assert "--gpu-timing off avoids it" in kernel_sentence(release, spans)
        assert "sampled" not in kernel_sentence(release, spans)
    assert kernel_sentence((2, 26, 5), spans).startswith("every kernel is reported, without GPU")
    assert "before NCCL 2.28 --gpu-timing off" in kernel_sentence(None, spans)


def process(policy: str, nodes: set[int], reason: str = "") -> ProcessContents:
    identity = {
        "gpu_timing.in_force": policy,
        "gpu_timing.reason": reason,
        "nccl_version": "23007",
        "host": "node0",
    }
    return ProcessContents("p", identity, comm_nodes=nodes)


def test_the_summary_of_run_says_what_was_in_force() -> None:
    (line,) = timing_lines([process("kernel", {1}, "trace mode is for single operations")] * 2)
    assert line.startswith("GPU timing kernel (trace mode is for single operations); every")
    assert "up to 2 times" in line
    assert timing_lines([process("sampled", {1})]) == ["GPU timing sampled"]
    assert timing_lines([ProcessContents("old")]) == []


@pytest.mark.parametrize(
    ("nodes", "within", "between"),
    [({1}, True, False), ({2}, False, True), ({1, 2}, True, True), ({0}, True, True)],
)
def test_the_summary_counts_nodes_of_communicators(
    nodes: set[int], within: bool, between: bool
) -> None:
    """Groups of tensor parallelism stay within a host, whatever other hosts the job has."""
    (line,) = timing_lines([process("kernel", nodes), process("kernel", set())])
    assert ("within a host" in line, "between hosts" in line) == (within, between)
