"""The arguments of `ncclscope export`."""

import argparse

from ncclscope.cli.arguments.engine import add_engine_argument
from ncclscope.cli.arguments.selection import add_selection_arguments, join_negative_times
from ncclscope.export.formats import FORMATS

preprocess_argv = join_negative_times
# Options that only some formats have.
OWN_OPTIONS = ("operations_only", "critical_path", "verbose", "follow")


def formats_with(option: str) -> list[str]:
    """Names of the formats that have an option."""
    if option == "follow":
        return [export.name for export in FORMATS.values() if export.can_follow]
    return [export.name for export in FORMATS.values() if option in export.options]


def names_in_words(names: list[str]) -> str:
    """Names as a list: chrome, otf2 and perfetto."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, which operations, in which format and where to."""
    directories = [export.name for export in FORMATS.values() if export.is_directory]
    own = {option: names_in_words(formats_with(option)) for option in OWN_OPTIONS}
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--to", choices=FORMATS, help="the format (default: what the name after -o ends in)"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="PATH",
        help="a file, compressed if it ends in .gz, or - for stdout; "
        f"for {', '.join(directories)} a directory",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="replace a directory that an export made"
    )
    parser.add_argument(
        "--operations-only", action="store_true",
        help=f"{own['operations_only']}: leave out calls, channels and proxy work",
    )  # fmt: skip
    parser.add_argument(
        "--critical-path", action="store_true",
        help=f"{own['critical_path']}: with the critical path of the selected time",
    )  # fmt: skip
    parser.add_argument(
        "--verbose", action="store_true",
        help=f"{own['verbose']}: with the times of events and channels",
    )  # fmt: skip
    parser.add_argument(
        "--follow", action="store_true",
        help=f"{own['follow']}: go on while the job runs, with what is new",
    )  # fmt: skip
    parser.add_argument(
        "--rotate", metavar="SIZE",
        help="with --follow: begin a new file at this size (default: 256M)",
    )  # fmt: skip
    parser.add_argument(
        "--keep", type=int, metavar="N",
        help="with --follow: keep N older files, as PATH.1 and so on (default: 8)",
    )  # fmt: skip
    add_selection_arguments(parser)
    add_engine_argument(parser)
