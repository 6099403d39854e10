"""Lines about logs that `decode` removed, and about decoded files that were not copied, for verbs
that need single events, or tables that are made of them.
"""

from pathlib import Path

from ncclscope.capture.housekeeping import folders_without_log
from ncclscope.cli.messages import print_message
from ncclscope.humanize import plural


def warn_of_removed_logs(capture: Path, what: str) -> None:
    """Says how many processes have no events any more. `what`: what they lack, as in "there are no
    events".
    """
    without = len(folders_without_log(capture))
    if without:
        print_message(
            f"ncclscope: {what} of {plural(without, 'process', 'processes')}: "
            "`ncclscope decode --remove-raw` removed their logs",
        )


def warn_of_left_out_tables(capture: Path) -> None:
    """Says which tables decoded processes lack, as `channels` that were not copied."""
    folders = folders_without_log(capture)
    if not folders:
        return
    from ncclscope.model.store.decoded_files import tables_left_out

    left_out = [tables for tables in map(tables_left_out, folders) if tables]
    if left_out:
        print_message(
            f"ncclscope: there are no {', '.join(sorted(set().union(*left_out)))} of "
            f"{plural(len(left_out), 'process', 'processes')}: their decoded files are not here",
        )
