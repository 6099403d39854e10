"""`ncclscope bench`."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from ncclscope.bench import datatypes, plan, table
from ncclscope.bench.json_results import BenchRun, as_json, as_nccl_tests
from ncclscope.bench.libraries import find_libraries
from ncclscope.bench.operations import find_operations
from ncclscope.bench.rank_placement import (
    RankPlacement,
    hosts_token,
    placement_from_hosts,
    placement_from_launcher,
    placement_on_this_host,
)
from ncclscope.bench.ranks import visible_devices
from ncclscope.bench.results import Result, Session
from ncclscope.bench.session import LaunchOptions, run_session
from ncclscope.cli.arguments.bench import DEFAULT_CALLS
from ncclscope.cli.bench_profilers import (
    is_comparison,
    list_profilers,
    run_comparison,
    run_training_comparison,
    show_saved,
)
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.output_files import check_file, is_replaced, write_text

_SIMULATED_RANKS = 2
_MOST_SIMULATED_RANKS = 64  # of a simulated communicator
_FEWEST_TO_SCALE = 2


def _split(text: str, everything: tuple[str, ...]) -> list[str]:
    return list(everything) if text.casefold() == "all" else text.split(",")


def _at_least(value: int | float, least: int, option: str) -> None:
    if not value >= least:
        raise UsageError(f"{option} {value} makes no sense", f"Give {option} {least} or more")


def _roots(text: str) -> tuple[int, ...]:
    if text.casefold() == "all":
        return (-1,)
    if not text.isdigit():
        raise UsageError(f"-r {text} is no rank", "Give a rank's number, or all")
    return (int(text),)


def plan_from(arguments: argparse.Namespace, ranks: int) -> plan.Plan:
    """The plan that the arguments describe, checked."""
    for value, least, option in (
        (arguments.runs, 1, "--runs"),
        (arguments.warmup_iters, 0, "-w"),
        (arguments.group, 1, "-m"),
        (arguments.check, 0, "-c"),
        (1 if arguments.iters is None else arguments.iters, 1, "-n"),
    ):
        _at_least(value, least, option)
    if arguments.seconds is not None and not 0 < arguments.seconds < 1e6:
        raise UsageError(
            f"--seconds {arguments.seconds:g} makes no sense", "Give it a time above 0"
        )
    if arguments.stepfactor is not None and arguments.stepbytes is not None:
        raise UsageError("sizes cannot grow in two ways", "Give -f or -i")
    calls = arguments.iters
    if calls is None and arguments.seconds is None:
        calls = DEFAULT_CALLS
    first = plan.parse_size(arguments.minbytes)
    last = plan.parse_size(arguments.maxbytes) if arguments.maxbytes else first
    step = plan.parse_size(arguments.stepbytes) if arguments.stepbytes else None
    types = _split(arguments.datatype, tuple(datatypes.DATATYPES))
    operators = _split(arguments.op, tuple(datatypes.REDUCTIONS))
    if arguments.scaling and ranks < _FEWEST_TO_SCALE:
        message = f"cannot show scaling with {ranks} rank"
        raise UsageError(message, f"It begins with {_FEWEST_TO_SCALE}: give more --ranks")
    places = {"both": ("out-of-place", "in-place"), "in": ("in-place",), "out": ("out-of-place",)}
    made = plan.Plan(
        operations=tuple(o.name for o in find_operations(arguments.operations or ["allreduce"])),
        sizes=plan.sizes_between(first, last, arguments.stepfactor, step),
        datatypes=tuple(datatypes.find_datatype(name) for name in types),
        reductions=tuple(datatypes.find_reduction(name) for name in operators),
        roots=_roots(arguments.root),
        places=places[arguments.place],
        calls=calls,
        seconds=arguments.seconds,
        runs=arguments.runs,
        warm_up=arguments.warmup_iters,
        grouped=arguments.group,
        graph=arguments.graph,
        blocking=arguments.blocking,
        held=arguments.held,
        checks=arguments.check,
        worlds=plan.worlds_up_to(ranks) if arguments.scaling else (),
    )
    plan.check_plan(made, ranks)
    return made


def launch_options(arguments: argparse.Namespace) -> LaunchOptions:
    """The ranks that the arguments ask for, and how they are started."""
    if not arguments.timeout > 0:
        raise UsageError(
            f"--timeout {arguments.timeout:g} makes no sense", "Give it a time above 0"
        )
    libraries = find_libraries(arguments.nccl, arguments.cudart, arguments.simulate, os.environ)
    placement = None
    if not arguments.ranks and not arguments.hosts:
        placement = placement_from_launcher(os.environ, arguments.address)
    devices = 1 if arguments.simulate else visible_devices(libraries)
    if not devices:
        message = "cannot measure: this machine has no GPU that CUDA can use"
        raise NcclscopeError(message, "See `nvidia-smi`; --simulate needs none")
    if placement is None:
        placement = _placement(arguments, devices)
    _check_devices(arguments, placement, devices)
    environment = dict(os.environ)
    if arguments.simulate:  # as many GPUs as ranks
        environment.setdefault("NCCLSCOPE_SIM_DEVICES", str(len(placement.local_ranks)))
    wrap = devices if arguments.share_gpu or (placement.launcher and devices == 1) else None
    return LaunchOptions(
        libraries,
        placement,
        {rank: placement.device(rank, wrap, os.environ) for rank in placement.local_ranks},
        arguments.share_gpu,
        arguments.timeout,
        environment,
    )


def _placement(arguments: argparse.Namespace, devices: int) -> RankPlacement:
    if arguments.ranks is not None:
        _at_least(arguments.ranks, 1, "--ranks")
    ranks = arguments.ranks or (_SIMULATED_RANKS if arguments.simulate else devices)
    if arguments.address:
        message = "--address says where rank 0 is to the ranks of a launcher, and there is none"
        raise UsageError(message, "Without torchrun, mpirun or srun, give --hosts")
    if not arguments.hosts:
        return placement_on_this_host(ranks)
    hosts = arguments.hosts.split(",")
    return placement_from_hosts(hosts, arguments.host_number, ranks, hosts_token(hosts, os.environ))


def _check_devices(arguments: argparse.Namespace, placement: RankPlacement, devices: int) -> None:
    if arguments.simulate and placement.ranks > _MOST_SIMULATED_RANKS:
        message = f"cannot simulate {placement.ranks} ranks: there may be {_MOST_SIMULATED_RANKS}"
        raise UsageError(message, "Use fewer --ranks")
    if arguments.simulate or arguments.share_gpu or placement.launcher:
        return
    ranks = len(placement.local_ranks)
    if ranks > devices:
        message = f"cannot start {ranks} ranks: there are {devices} GPUs"
        raise UsageError(message, "Use fewer --ranks, or --share-gpu to put several on one")


class TablePrinter:
    """Prints the table row by row, unless it is quiet."""

    def __init__(self, bench_plan: plan.Plan, quiet: bool) -> None:
        self.session: Session | None = None
        self.results: list[Result] = []
        self._plan, self._quiet = bench_plan, quiet
        self._rows = table.RowBuilder(bench_plan)
        self._title = ""

    def begin(self, session: Session) -> None:
        """Prints the lines above the table."""
        self.session = session
        self._print(*table.heading_lines(session, self._plan))

    def add(self, result: Result) -> None:
        """Adds the result of a case, and prints a row that it completes."""
        self.results.append(result)
        title = result.case.spec.title
        if self._plan.worlds:
            title += f", {result.case.ranks} ranks"
        if title != self._title:
            self._title = title
            self._print("#", f"# {title}", *table.column_lines())
        row = self._rows.add(result)
        if row:
            self._print(table.row_line(row))

    def end(self, session: Session) -> None:
        """Prints the lines below the table."""
        if self._plan.worlds:
            self._print("#", *table.scaling_lines(self.results))
        self._print("#", *table.closing_lines(self.results, session))

    def _print(self, *lines: str) -> None:
        if not self._quiet:
            print("\n".join(lines), flush=True)


def _check_output(arguments: argparse.Namespace) -> None:
    """Raises if an output file cannot be written, before minutes are spent on measuring."""
    if (arguments.plot or "-") != "-" and not arguments.plot.endswith((".html", ".svg")):
        message = f"cannot draw {arguments.plot}: plots are HTML or SVG"
        raise UsageError(message, "Give --plot FILE.html or FILE.svg, or no FILE to see it here")
    files = (arguments.save, arguments.nccl_tests_json, arguments.parquet, arguments.plot)
    for path in (*files, arguments.csv):
        if not path or path == "-":
            continue
        check_file(Path(path))
        folder = Path(os.path.realpath(path)).parent
        if is_replaced(Path(path)) and not os.access(folder, os.W_OK):
            message = f"cannot write {path}: no directory that can be written to"
            raise UsageError(message, "Name another file")


def _check_comparison_output(arguments: argparse.Namespace) -> None:
    """Raises for output that a comparison of profilers has not, or that it alone has."""
    if not is_comparison(arguments):
        if arguments.csv:
            message = "--csv writes the tables of a comparison of profilers"
            raise UsageError(message, "Give --compare-profilers, or --parquet for every call")
        return
    if arguments.nccl_tests_json or arguments.parquet:
        message = "a comparison of profilers is written as JSON, CSV and HTML"
        raise UsageError(message, "Give --save, --csv or --plot FILE.html")
    if (arguments.plot or "-") != "-" and not arguments.plot.endswith(".html"):
        raise UsageError("the figures of a comparison are one page", "Give --plot FILE.html")


def _write_outputs(arguments: argparse.Namespace, bench_run: BenchRun) -> None:
    """Writes the outputs other than the table."""
    if arguments.json:
        print(json.dumps(as_json(bench_run), indent=1))
    if arguments.save:
        write_text(Path(arguments.save), json.dumps(as_json(bench_run), indent=1) + "\n")
    if arguments.nccl_tests_json:
        write_text(Path(arguments.nccl_tests_json), json.dumps(as_nccl_tests(bench_run)) + "\n")
    if arguments.parquet:
        from ncclscope.bench.calls import write_calls

        simulated = bool(bench_run.session.simulation)
        write_calls(bench_run.results, simulated, Path(arguments.parquet))
    if arguments.plot:
        _plot(arguments.plot, bench_run)


def _plot(path: str, bench_run: BenchRun) -> None:
    from ncclscope.bench import plots

    results, session = bench_run.results, bench_run.session
    if path == "-":
        print("\n".join(plots.text_lines(results, session)))
    elif path.endswith(".svg"):
        write_text(Path(path), plots.svg(results, session, standalone=True))
    else:
        write_text(Path(path), plots.html(results, session))


def run(arguments: argparse.Namespace) -> int:
    """Measures, and shows the results; wrong elements are an error."""
    if arguments.profiler == ["list"]:
        return list_profilers()
    _check_output(arguments)
    _check_comparison_output(arguments)
    if arguments.comparison:
        return show_saved(arguments)
    if arguments.train:
        return run_training_comparison(arguments)
    options = launch_options(arguments)
    bench_plan = plan_from(arguments, options.placement.ranks)
    if is_comparison(arguments):
        return run_comparison(arguments, options, bench_plan)
    printer = TablePrinter(bench_plan, arguments.json)
    began = time.time()
    run_session(bench_plan, options, printer.begin, printer.add)
    if printer.session is None:  # another process leads, and shows the results
        return 0
    printer.end(printer.session)
    command, results = tuple(sys.argv), tuple(printer.results)
    _write_outputs(
        arguments, BenchRun(bench_plan, printer.session, results, command, began, time.time())
    )
    wrong = sum(result.wrong or 0 for result in results)
    if wrong:
        raise NcclscopeError(f"results are wrong: {wrong:,} elements are not what they must be")
    return 0
