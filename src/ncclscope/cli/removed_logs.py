"""A line about logs that `decode` removed, for verbs that need single events."""

from pathlib import Path

from ncclscope.capture.housekeeping import processes_without_log
from ncclscope.cli.messages import print_message
from ncclscope.humanize import plural


def warn_of_removed_logs(capture: Path, what: str) -> None:
    """Says how many processes have no events any more. `what`: what they lack, as in "there are no
    events".
    """
    without = processes_without_log(capture)
    if without:
        print_message(
            f"ncclscope: {what} of {plural(without, 'process', 'processes')}: "
            "`ncclscope decode --remove-raw` removed their logs",
        )
