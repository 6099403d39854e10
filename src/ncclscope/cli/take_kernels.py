"""What `ncclscope ctl --kernels` does: asks processes for the CUDA kernels of some steps."""

import time
from pathlib import Path

from ncclscope.capture.context_lines import KernelFile, read_context
from ncclscope.capture.control import request
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import plural

# All ranks must have read the request when the first begins, or they take different steps.
_HEARD_S = 2.0
_ANSWER_S = 120.0


def request_line(steps: int) -> str:
    """The line of the control file: how many steps, from which time on."""
    return f"kernels {steps} {time.time_ns() + int(_HEARD_S * 1e9)}"


def take_kernels(capture: Path, folders: list[Path], lines: list[str]) -> int:
    """Sends the request, waits for the traces, and says which processes wrote one."""
    without = [folder for folder in folders if "torch" not in read_context(folder).facts]
    if without:
        raise NcclscopeError(
            f"cannot take kernels of {capture}: PyTorch is not attached in {without[0].name}",
            "That needs a job that runs PyTorch and was started without --no-torch; it attaches "
            "with the first communicator",
        )
    before = {folder: len(read_context(folder).kernels) for folder in folders}
    request(capture, *lines)
    answers: dict[Path, KernelFile] = {}
    end = time.monotonic() + _ANSWER_S
    while len(answers) < len(folders) and time.monotonic() < end:
        time.sleep(0.2)
        for folder in folders:
            new = read_context(folder).kernels[before[folder] :]
            if new and folder not in answers:
                answers[folder] = new[0]
    return _say(capture, folders, answers)


def _say(capture: Path, folders: list[Path], answers: dict[Path, KernelFile]) -> int:
    written = [file for file in answers.values() if file.name]
    steps = max((len(file.ends_ns) - 1 for file in written), default=0)
    processes = plural(len(folders), "process", "processes")
    print(f"{len(written)} of {processes} took the kernels of {plural(max(steps, 0), 'step')}")
    for why in sorted({file.why for file in answers.values() if not file.name}):
        count = sum(file.why == why for file in answers.values())
        print(f"{plural(count, 'process', 'processes')}: {why}")
    if written:
        print(f"next: ncclscope report {capture}")
    if len(answers) < len(folders):
        raise NcclscopeError(
            f"{plural(len(folders) - len(answers), 'process', 'processes')} of {capture} did not "
            f"answer within {_ANSWER_S:.0f} s",
            "Steps may take longer than that: traces that come later are in the report as well. "
            "`ncclscope status` says whether the job stands still",
        )
    return 0 if written else 1
