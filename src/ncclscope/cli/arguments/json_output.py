"""The option --json."""

import argparse


def add_json_argument(parser: argparse._ActionsContainer) -> None:
    """Adds --json."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON; the page below describes its keys"
    )
