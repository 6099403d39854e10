"""`ncclscope import`."""

import argparse
import json
from pathlib import Path

from ncclscope.analysis.selection import Selection
from ncclscope.cli import suggested_commands
from ncclscope.cli.messages import print_message
from ncclscope.cli.progress import progress_line
from ncclscope.errors import FormatError
from ncclscope.export.parquet import holds_dataset, write_parquet
from ncclscope.humanize import printable
from ncclscope.ingest.call_stacks import CallStacks
from ncclscope.ingest.formats import ImportPlan, import_files, plan_import
from ncclscope.ingest.nccl_log_topology import topology_of_logs
from ncclscope.model.completeness import Completeness
from ncclscope.model.topology import FILE
from ncclscope.output_files import check_directory, put_directory, scratch_near, write_text


def run(arguments: argparse.Namespace) -> int:
    """Makes a dataset that opens like a capture."""
    check_directory(arguments.output, arguments.force, holds_dataset)
    completeness = _make(plan_import(arguments.files, arguments.form), arguments.output)
    shown = printable(str(arguments.output))
    print_message(f"ncclscope: {completeness.line()}")
    for note in completeness.notes:
        print_message(f"           {printable(note)}")
    print_message(f"           written: {shown}")
    verb = "diagnose" if completeness.in_flight else "report"
    print_message(
        f"           next: {printable(suggested_commands.command(verb, arguments.output))}",
    )
    return 0


def _make(plan: ImportPlan, path: Path) -> Completeness:
    progress = progress_line("{done:,} of {of:,} files …")
    with scratch_near(path) as scratch:
        (scratch / "gathered").mkdir()
        stacks = CallStacks()
        model = import_files(plan, scratch / "gathered", progress, stacks)
        topology = topology_of_logs(plan.logs)
        if not model.processes and not topology:
            named = ", ".join(str(file) for file in plan.files[:3])
            raise FormatError(f"nothing to import in {named}: no operation of NCCL's is in it")
        dataset = scratch / "imported"
        write_parquet(model, Selection(), dataset, progress=progress)
        stacks.write(dataset)
        if topology:
            write_text(dataset / FILE, json.dumps(topology.as_json()))
        put_directory(dataset, path)
    return model.completeness
