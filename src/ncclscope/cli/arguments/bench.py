"""The arguments of `ncclscope bench`."""

import argparse

from ncclscope.bench.operation_names import OPERATION_NAMES
from ncclscope.cli.arguments.bench_profilers import add_profiler_arguments, add_training_arguments

DEFAULT_CALLS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to measure, where, and how to show it; short options are nccl-tests'."""
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION",
        help=f"{', '.join(OPERATION_NAMES)}, all (default: allreduce)",
    )  # fmt: skip
    _add_work(parser.add_argument_group("what"))
    _add_stopping(parser.add_argument_group("how often"))
    _add_ranks(parser.add_argument_group("where"))
    _add_output(parser.add_argument_group("output"))
    add_profiler_arguments(parser.add_argument_group("comparison of profilers"))
    add_training_arguments(parser.add_argument_group("training"))


def _add_work(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("-b", "--minbytes", default="32M", metavar="SIZE", help="(default: 32M)")
    group.add_argument("-e", "--maxbytes", metavar="SIZE", help="(default: as -b)")
    group.add_argument(
        "-f", "--stepfactor", type=float, metavar="F", help="sizes grow by this factor (default: 2)"
    )
    group.add_argument("-i", "--stepbytes", metavar="SIZE", help="sizes grow by this many bytes")
    group.add_argument("-d", "--datatype", default="float", metavar="TYPE,…|all")
    group.add_argument(
        "-o", "--op", default="sum", metavar="OP,…|all", help="sum, prod, min, max, avg"
    )
    group.add_argument("-r", "--root", default="0", metavar="RANK|all")
    group.add_argument(
        "--place", choices=("both", "in", "out"), default="both",
        help="in place, out of place (default: both)",
    )  # fmt: skip
    group.add_argument(
        "-m", "--group", type=int, default=1, metavar="N", help="calls in one NCCL group"
    )
    group.add_argument("-G", "--graph", action="store_true", help="replay a CUDA graph of the call")
    group.add_argument(
        "-z", "--blocking", action="store_true",
        help="each call alone: a barrier before, its end awaited (default: back to back)",
    )  # fmt: skip
    group.add_argument(
        "--held", action="store_true",
        help="the GPU begins when a batch of calls is queued: times without the host's",
    )  # fmt: skip
    group.add_argument(
        "-c", "--check", type=int, default=1, metavar="N", help="check results N times; 0: never"
    )


def _add_stopping(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "-n", "--iters", type=int, metavar="N",
        help=f"calls a run (default: {DEFAULT_CALLS}, or as many as --seconds allows)",
    )  # fmt: skip
    group.add_argument(
        "--seconds", type=float, metavar="S", help="time a run; with -n, what comes first"
    )
    group.add_argument("--runs", type=int, default=1, metavar="N", help="(default: 1)")
    group.add_argument(
        "-w", "--warmup-iters", type=int, default=5, metavar="N", help="calls before (default: 5)"
    )


def _add_ranks(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--ranks", type=int, metavar="N",
        help="ranks to start here (default: one for each GPU; inside torchrun, mpirun or srun this "
        "process is one of theirs)",
    )  # fmt: skip
    group.add_argument(
        "--share-gpu",
        action="store_true",
        help="several ranks on one GPU, each as if on its own host",
    )
    group.add_argument(
        "--hosts", metavar="HOST,…",
        help="start this command on each of these hosts; rank 0 is on the first",
    )  # fmt: skip
    group.add_argument("--host-number", type=int, metavar="N", help="which of --hosts this one is")
    group.add_argument("--address", metavar="HOST[:PORT]", help="where rank 0 is, in a launcher")
    group.add_argument(
        "--timeout", type=float, default=120.0, metavar="S",
        help="longest wait for a rank (default: 120)",
    )  # fmt: skip
    group.add_argument("--nccl", metavar="PATH", help="libnccl.so.2 (or NCCLSCOPE_BENCH_NCCL)")
    group.add_argument("--cudart", metavar="PATH", help="libcudart (or NCCLSCOPE_BENCH_CUDART)")
    group.add_argument(
        "--simulate", action="store_true", help="no GPU: simulated NCCL, whose times mean nothing"
    )
    group.add_argument(
        "--scaling", action="store_true", help="2, 4, … ranks one after the other, and efficiency"
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    group.add_argument(
        "--save", metavar="FILE", help="that JSON as a file: a baseline for later comparison"
    )
    group.add_argument("-J", "--nccl-tests-json", metavar="FILE", help="nccl-tests' own JSON")
    group.add_argument("--parquet", metavar="FILE", help="every call of every rank")
    group.add_argument(
        "--plot", nargs="?", const="-", metavar="FILE",
        help="distributions: FILE.html, FILE.svg, or here",
    )  # fmt: skip
