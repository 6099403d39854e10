"""`ncclscope diagnose`."""

import argparse
import json
from pathlib import Path

from ncclscope.analysis.baseline import read_baseline
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli import suggested_commands
from ncclscope.cli.engine_options import add_engine_argument
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.terminal import output_width, painted
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import SEVERITIES, at_least
from ncclscope.report.diagnosis import as_json, lines
from ncclscope.snapshot.process import unfinished_snapshots

_FOUND = 3  # exit code
_WIDEST = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, against what, in which form."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument("--json", action="store_true", help="JSON; see docs/verbs/diagnose.md")
    parser.add_argument(
        "--baseline", metavar="FILE", help="bandwidths to expect: JSON of bench, or nccl-tests -J"
    )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        metavar="SEVERITY",
        help="exit with 3 on a finding of that severity or above: info, warning, critical",
    )
    add_engine_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints findings, the worst first."""
    baseline = read_baseline(Path(arguments.baseline)) if arguments.baseline else None
    model = open_model_with_progress(resolve_capture(arguments.capture), arguments.on)
    found = diagnose(model, unfinished_snapshots(model), baseline)
    if arguments.json:
        print(json.dumps(as_json(model, found), indent=2, allow_nan=False))
    else:
        for line in lines(model, found, output_width(_WIDEST), suggested_commands.command()):
            print(painted(line))
    bar = arguments.fail_on
    failed = bar and any(at_least(finding.severity, bar) for finding in found.findings)
    return _FOUND if failed else 0
