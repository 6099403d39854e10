"""All measurements, or those named on the command line."""

import sys

from benchmarks import (
    bytes_per_operation,
    callback_cost,
    clients,
    cluster_faults,
    cold_callbacks,
    diagnose_quality,
    export_speed,
    faults,
    help_time,
    helper_cpu,
    history,
    kills,
    many_operations,
    many_ranks,
    model_speed,
    mutations,
    older_checkout,
    range_cost,
    reader_faults,
    reader_speed,
    sampled_verdicts,
    server_faults,
    serving,
    slurm,
    soak,
    sql_engines,
    stalls,
    start_and_exit,
    straggler_alert,
    timeline_frames,
    timeline_speed,
    torch_cost,
    verdict_quality,
)
from benchmarks.results import ROOT

ALL = {
    "callback_cost": callback_cost,
    "cold_callbacks": cold_callbacks,
    "range_cost": range_cost,
    "torch_cost": torch_cost,
    "stalls": stalls,
    "helper_cpu": helper_cpu,
    "bytes_per_operation": bytes_per_operation,
    "start_and_exit": start_and_exit,
    "help_time": help_time,
    "reader_speed": reader_speed,
    "model_speed": model_speed,
    "many_ranks": many_ranks,
    "many_operations": many_operations,
    "history": history,
    "serving": serving,
    "clients": clients,
    "diagnose_quality": diagnose_quality,
    "verdict_quality": verdict_quality,
    "sampled_verdicts": sampled_verdicts,
    "straggler_alert": straggler_alert,
    "timeline_speed": timeline_speed,
    "timeline_frames": timeline_frames,
    "export_speed": export_speed,
    "soak": soak,
    "kills": kills,
    "faults": faults,
    "mutations": mutations,
    "reader_faults": reader_faults,
    "server_faults": server_faults,
    "cluster_faults": cluster_faults,
    "sql_engines": sql_engines,  # needs Java
    "older_checkout": older_checkout,  # needs one
    "slurm": slurm,  # last: it needs root and Slurm
}


def main() -> int:
    """Runs them; the first bar that does not hold ends the run with exit code 1."""
    (ROOT / ".bench").mkdir(exist_ok=True)
    for name in sys.argv[1:] or ALL:
        if name not in ALL:
            print(f"no measurement is called {name}; there are {', '.join(ALL)}", file=sys.stderr)
            return 2
        ALL[name].main()
    return 0


sys.exit(main())
