"""The arguments of `ncclscope history`."""

import argparse

from ncclscope.cli.arguments.json_output import add_json_argument

ACTIONS = ("add", "list", "trend", "diff", "prune")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to do with which history."""
    parser.usage = "ncclscope history add|list|trend|diff|prune DIR [CAPTURE…] [OPTION]…"
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "directory", metavar="DIR", help="the directory of the history, or s3://BUCKET/…"
    )
    parser.add_argument("captures", nargs="*", metavar="CAPTURE", help="add: captures to add")
    parser.add_argument("--label", help="add: call the job this (default: the capture's name)")
    parser.add_argument("--host", help="trend: of this host")
    parser.add_argument(
        "--link", nargs=2, metavar=("FROM", "TO"), help="trend: of transfers between two hosts"
    )
    parser.add_argument("--comm", metavar="ROLE", help="trend: of communicators of a role: dp")
    parser.add_argument("--module", metavar="NAME", help="trend: of a module of the user's model")
    parser.add_argument("--job", metavar="NAME", help="diff: this job (default: the newest)")
    parser.add_argument(
        "--last", type=int, metavar="N", help="at most the last N jobs; of diff, equal ones"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="add, prune: delete all but the last N jobs"
    )
    parser.add_argument(
        "--older-than", metavar="AGE", help="prune: delete jobs that began longer ago: 26w"
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="prune: show it, delete nothing"
    )
    add_json_argument(parser)
