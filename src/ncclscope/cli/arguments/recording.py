"""The options that `run`, `env` and `overhead` share: where and what to record."""

import argparse

from ncclscope.launch.setting_names import GPU_TIMINGS, TORCH_LEVELS
from ncclscope.nccl.events import MODES


def add_recording_arguments(parser: argparse.ArgumentParser, output_help: str = "") -> None:
    """Adds -o, --mode and the recorder's limits."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help=f"the capture (default: ./ncclscope-<job id or time>){output_help}",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="trace",
        help="profile: counts and times by key; trace: every call; full: down to proxy steps "
        "(default: trace)",
    )
    parser.add_argument("--events", metavar="MASK", help="NCCL's event bits, instead of the mode's")
    parser.add_argument(
        "--arena", metavar="BYTES", help="memory per process, K/M/G (default: at most 256M)"
    )
    parser.add_argument(
        "--ring",
        metavar="BYTES",
        help="flight recorder: keep the newest in memory, write at the end",
    )
    parser.add_argument(
        "--chain", metavar="PLUGIN", help="another profiler plugin to pass all callbacks on to"
    )
    parser.add_argument(
        "--disk-limit", metavar="BYTES", help="disk per process, oldest goes first (default: 4G)"
    )
    timing = parser.add_mutually_exclusive_group()
    timing.add_argument(
        "--gpu-timing",
        choices=GPU_TIMINGS,
        help="kernel: of every operation, by NCCL's KernelCh events, which slow a job down; "
        "sampled: of a share, by CUDA events, from NCCL 2.28 on; auto: sampled in profile mode, "
        "else kernel "
        "(default: auto)",
    )
    timing.add_argument(
        "--no-gpu-timing",
        action="store_const",
        const="off",
        dest="gpu_timing",
        help="the same as --gpu-timing off",
    )
    parser.add_argument(
        "--nvtx", action="store_true", help="NVTX ranges and marks of the job and of NCCL itself"
    )
    torch = parser.add_mutually_exclusive_group()
    torch.add_argument(
        "--torch",
        nargs="?",
        const="steps",
        choices=TORCH_LEVELS,
        metavar="modules",
        help="what PyTorch is doing: steps and phases; with =modules, blocks of the model as well "
        "(default: steps, where PyTorch calls NCCL)",
    )
    torch.add_argument(
        "--no-torch", action="store_const", const="off", dest="torch", help="leave PyTorch alone"
    )
    parser.add_argument(
        "--kernels-at",
        metavar="STEP[:STEPS]",
        help="take all CUDA kernels from this training step on, of 3 steps or as many, with "
        "PyTorch's profiler: exposed communication, exactly",
    )
