"""What GPU timing costs, in sentences."""

from pathlib import Path

from ncclscope.capture.contents import ProcessContents
from ncclscope.cli.run_summary import timing_lines
from ncclscope.nccl.gpu_timing import AVOID, kernel_sentence, sampling_sentence


def test_the_cost_depends_on_release_and_topology() -> None:
    assert "up to 1.9 times" in kernel_sentence((2, 30, 7), 1)
    assert "with NCCL 2.30.7" in kernel_sentence((2, 30, 7), 1)
    assert "up to 1.4 times" in kernel_sentence((2, 32, 3), 1)
    assert kernel_sentence((2, 28, 9), 1).endswith(AVOID)
    between_hosts = kernel_sentence((2, 28, 9), 2)
    assert "nothing measurable" in between_hosts
    assert AVOID not in between_hosts
    assert "nothing measurable over a network" in kernel_sentence(), "nobody knows yet"


def test_what_can_be_sampled_depends_on_the_release() -> None:
    assert "CUDA events" in sampling_sentence((2, 28, 9))
    assert "bursts" in sampling_sentence((2, 27, 7))
    assert "cannot be sampled" in sampling_sentence((2, 25, 1))


def test_the_summary_of_run_says_what_was_in_force() -> None:
    def process(policy: str, reason: str = "") -> ProcessContents:
        identity = {
            "gpu_timing.in_force": policy,
            "gpu_timing.reason": reason,
            "nccl_version": "23007",
            "host": "node0",
        }
        return ProcessContents(Path("p").name, identity)

    (line,) = timing_lines([process("kernel", "trace mode is for single operations")] * 2)
    assert line.startswith("GPU timing kernel (trace mode is for single operations); every")
    assert "up to 1.9 times" in line
    assert timing_lines([process("sampled")]) == ["GPU timing sampled"]
    assert timing_lines([ProcessContents("old")]) == []
