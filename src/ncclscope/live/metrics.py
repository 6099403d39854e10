"""Every metric that `ncclscope serve` exports, in one list. docs/metrics.md and the dashboards are
generated from it.
"""

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"
PREFIX = "ncclscope_"
EVERYWHERE = ("run", "host")  # labels that every series of a job has
# Labels that take the value `other` when a job has more series than its limit.
FOLDABLE = (
    "communicator", "size", "function", "rank",
    "gpu", "comm_name", "nranks", "collective", "p2p_operation", "message_size", "algo_proto",
)  # fmt: skip
OTHER = "other"

# Upper bounds of the duration histogram. Powers of two in ns are edges of the recorder's own
# buckets, so no bucket has to be split.
DURATION_BOUNDS_NS = tuple(1 << power for power in range(13, 35, 2))
# Upper bounds of the size classes, in bytes; the eighth and last class has none.
SIZE_BOUNDS_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30)
SIZE_NAMES = ("4K", "64K", "1M", "16M", "64M", "256M", "1G", "more")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a family of series."""

    name: str  # without prefix; Prometheus sees counters with _total behind it
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    prefix: str = PREFIX

    @property
    def full_name(self) -> str:
        """The name with its prefix, without a counter's _total."""
        return self.prefix + self.name

    @property
    def series(self) -> int:
        """Number of series that one combination of labels makes."""
        return len(DURATION_BOUNDS_NS) + 3 if self.kind == HISTOGRAM else 1


_WORK = ("rank", "function", "scope")
_SIZED = ("function", "size", "scope")
_SCOPE = (
    "scope: intra where all ranks of the communicator are on one node, inter where they are not"
)
# In order of importance: if a job has too many series, the last ones are folded first.
METRICS = (
    Metric("run", INFO, "The job: NCCL's release, mode, whether it is a simulation.",
           ("nccl", "mode", "capture", "simulation")),
    Metric("process_up", GAUGE, "1 while the process lives, 0 when it died.",
           ("rank",)),
    Metric("hung", GAUGE, "1 if `ncclscope status` calls the job hung, else 0."),
    Metric("expected_processes", GAUGE,
           "Processes that the whole job must have, on all hosts together."),
    Metric("seconds_since_progress", GAUGE,
           "Since the last operation of the rank ended, or the last call was made.", ("rank",)),
    Metric("in_flight", GAUGE,
           "Operations called and not ended on the GPU; absent if GPU timing is not `kernel`: "
           "nothing says then when operations end.", ("rank",)),
    Metric("oldest_in_flight_seconds", GAUGE,
           "Age of the oldest of them; 0 if there is none; absent like them.", ("rank",)),
    Metric("rank", INFO, "Where a rank runs.", ("rank", "pid", "gpu", "gpu_uuid")),
    Metric("waiting_caused_seconds", COUNTER,
           "Waiting of all ranks that began on this rank, as `report` says who made others wait; "
           "absent where no account of waiting can be made.",
           ("rank",)),
    Metric("waiting_for_work_seconds", COUNTER,
           "Of waiting_caused_seconds, waiting for a root that had no work to hand out, as a "
           "server between requests.",
           ("rank",)),
    Metric("waiting_account_seconds", COUNTER,
           "Time of the rank that the account of waiting covers: by it, shares.", ("rank",)),
    Metric("waiting_seconds", COUNTER,
           "All waiting of the job, by where it began; said on its first host.", ("origin",)),
    Metric("waiting_account_made", GAUGE,
           "1 while the account of waiting goes on, 0 where it does not: the reason.",
           ("reason",)),
    Metric("dropped_events", COUNTER, "Events that NCCL reported and that are not on record.",
           ("reason",)),
    Metric("timed_operations", COUNTER, "Operations with a GPU time, of all ranks here."),
    Metric("untimed_operations", COUNTER, "Operations without a GPU time.", ("reason",)),
    Metric("sampled_operations", COUNTER,
           "Of the timed operations, those of a sample, timed by CUDA events around launches."),
    Metric("rejected_stamps", COUNTER,
           "Operations whose GPU stamps were found wrong; `report` repairs what can be repaired.",
           ("reason",)),
    Metric("calls", COUNTER, "Calls made by the user.", ("rank", "function")),
    Metric("operations", COUNTER, f"Operations carried out; {_SCOPE}.", _WORK),
    Metric("bytes", COUNTER, "Bytes of these operations, as nccl-tests count them.", _WORK),
    Metric("gpu_seconds", COUNTER, "Time on the GPU of operations whose GPU time is exact.", _WORK),
    Metric("estimated_gpu_seconds", COUNTER,
           "Time on the GPU of all operations, where a sample was timed; absent where all were.",
           _WORK),
    Metric("estimated_gpu_seconds_error", GAUGE,
           "How far estimated_gpu_seconds may be off: half of its 95 % interval.", _WORK),
    Metric("least_gpu_seconds", COUNTER,
           "The same where the GPU's stop stamp may come early (Send, Recv, TREE, NVLS): at least "
           "so long. They count for no bandwidth.", _WORK),
    Metric("timed_bytes", COUNTER,
           "Bytes of the operations of gpu_seconds: by it, algorithm bandwidth.", _WORK),
    Metric("timed_bus_bytes", COUNTER,
           "The same times nccl-tests' factor: by gpu_seconds, bus bandwidth.", _WORK),
    Metric("algbw_bytes_per_second", GAUGE,
           "Algorithm bandwidth since the reading before; absent while nothing was timed.",
           ("function", "scope")),
    Metric("busbw_bytes_per_second", GAUGE,
           "Bus bandwidth since the reading before; absent while nothing was timed.",
           ("function", "scope")),
    Metric("steps_per_second", GAUGE,
           "How often the job's pattern of calls repeats; absent where it does not."),
    Metric("training_steps", COUNTER,
           "Training steps that ended, as the program's ranges say; absent without ranges.",
           ("rank",)),
    Metric("training_step_seconds", GAUGE, "Length of the last training step.", ("rank",)),
    Metric("training_tokens", COUNTER,
           "Tokens that the program said it has trained on; absent where it says none.",
           ("rank",)),
    Metric("data_wait_seconds", COUNTER, "Time that the training loop waited for data.",
           ("rank",)),
    Metric("sized_bus_bytes", COUNTER,
           "As timed_bus_bytes, of all ranks here, by class of message sizes.", _SIZED),
    Metric("sized_gpu_seconds", COUNTER,
           "As gpu_seconds: what sized_bus_bytes took; by it, bus bandwidth.", _SIZED),
    Metric("operation_seconds", HISTOGRAM,
           "Duration on the GPU of the timed operations, or the least it can be, as in "
           "least_gpu_seconds; size: upper end of the class of message sizes.",
           ("function", "size")),
    Metric("communicator_gpu_seconds", COUNTER,
           "Time in AllReduce, AllGather and ReduceScatter by rank: what a rank has less than its "
           "peers, it made them wait. Where a sample was timed, an estimate.",
           ("communicator", "rank", "scope")),
    Metric("communicator_gpu_seconds_error", GAUGE,
           "How far communicator_gpu_seconds may be off: half of its 95 % interval; absent where "
           "all operations were timed.",
           ("communicator", "rank", "scope")),
    Metric("communicator_operations", COUNTER, "Operations of a communicator, all ranks here.",
           ("communicator",)),
    Metric("verdict", GAUGE, "1 for what `ncclscope status` says about a communicator.",
           ("communicator", "verdict")),
    Metric("communicator", INFO, "A communicator; inferred: its name follows from its members.",
           ("communicator", "ranks", "nodes", "inferred")),
    Metric("recorder_cpu_seconds", COUNTER, "CPU time of the recorder's helper thread.", ("rank",)),
    Metric("folded_series", GAUGE,
           "Series that are part of `other`, because a job may have no more."),
)  # fmt: skip
# About `serve` itself, without labels.
OWN_METRICS = (
    Metric("runs", GAUGE, "Jobs that are being followed."),
    Metric("reading_seconds", GAUGE, "What reading all captures took the last time."),
    Metric("serve_cpu_seconds", COUNTER, "CPU time of `ncclscope serve`."),
    Metric("unreadable_processes", GAUGE, "Processes whose files cannot be read."),
    Metric(
        "unreadable_captures",
        GAUGE,
        "Directories that cannot be read: of other users, or on a file system that is gone.",
    ),
)
# About hosts, whether a job runs or not: serve --system. What a host does not have is absent.
_GPU, _LINK, _HOST = ("host", "gpu"), ("host", "link"), ("host",)
SYSTEM_METRICS = (
    Metric("gpu", INFO, "A GPU.", (*_GPU, "gpu_uuid", "bus_id", "model")),
    Metric("gpu_utilization_ratio", GAUGE,
           "Share of time in which a kernel ran, NCCL's waiting kernels included.", _GPU),
    Metric("gpu_memory_used_bytes", GAUGE, "Memory in use.", _GPU),
    Metric("gpu_memory_bytes", GAUGE, "Memory there is.", _GPU),
    Metric("gpu_power_watts", GAUGE, "Power drawn.", _GPU),
    Metric("gpu_power_limit_watts", GAUGE, "Power allowed.", _GPU),
    Metric("gpu_temperature_celsius", GAUGE, "Temperature of the chip.", _GPU),
    Metric("gpu_sm_clock_hertz", GAUGE, "Clock of the multiprocessors.", _GPU),
    Metric("gpu_slowed", GAUGE, "1 while clocks are lowered for this reason, else 0.",
           (*_GPU, "reason")),
    Metric("gpu_pcie_bytes", COUNTER, "Moved over PCIe.", (*_GPU, "direction")),
    Metric("gpu_pcie_bytes_per_second", GAUGE,
           "Moved over PCIe, where the driver keeps no total: of 20 ms.", (*_GPU, "direction")),
    Metric("gpu_pcie_capacity_bytes_per_second", GAUGE,
           "What the PCIe link can move in a direction, as it is trained now.", _GPU),
    Metric("gpu_pcie_replays", COUNTER, "PCIe packets sent again.", _GPU),
    Metric("gpu_nvlink_bytes", COUNTER, "Moved over all NVLinks.", (*_GPU, "direction")),
    Metric("gpu_nvlink_errors", COUNTER, "CRC errors, replays and recoveries of NVLinks.", _GPU),
    Metric("gpu_ecc_errors", COUNTER, "Memory errors.", (*_GPU, "reason")),
    Metric("gpu_xid_errors", COUNTER, "The driver's Xid messages since sampling began.", _GPU),
    Metric("link_bytes", COUNTER, "Moved by a network interface or InfiniBand port.",
           (*_LINK, "direction")),
    Metric("link_errors", COUNTER, "What went wrong on it.", (*_LINK, "reason")),
    Metric("link_up", GAUGE, "1 while it is up.", _LINK),
    Metric("link_speed_bytes_per_second", GAUGE, "What it was negotiated to.", _LINK),
    Metric("host_cpus", GAUGE, "Processors.", _HOST),
    Metric("host_cpu_busy_seconds", COUNTER, "CPU time of everything that ran.", _HOST),
    Metric("host_cpu_throttled_seconds", COUNTER,
           "Time that serve's control group was kept from running, added up over CPUs.", _HOST),
    Metric("host_memory_available_bytes", GAUGE, "Memory that programs could still have.", _HOST),
    Metric("host_memory_bytes", GAUGE, "Memory there is.", _HOST),
    Metric("host_swap_used_bytes", GAUGE, "Swap in use.", _HOST),
    Metric("host_oom_kills", COUNTER, "Processes killed for want of memory.", _HOST),
    Metric("host_pressure_seconds", COUNTER, "Time in which somebody, or everybody, waited.",
           (*_HOST, "resource", "who")),
    Metric("host_sample_age_seconds", GAUGE, "How old the machine's numbers are.", _HOST),
)  # fmt: skip
# NCCL Inspector's names and labels, for dashboards made for it: serve --inspector-names.
_INSPECTOR = ("version", "slurm_job_id", "node", "gpu", "comm_name", "n_nodes", "nranks")
_COLLECTIVE = (*_INSPECTOR, "collective", "message_size", "algo_proto")
_PAIR = (*_INSPECTOR, "p2p_operation", "message_size")
INSPECTOR_METRICS = (
    Metric("bus_bandwidth_gbs", GAUGE, "Bus bandwidth of collectives in GB/s over 30 s.",
           _COLLECTIVE, "nccl_"),
    Metric("algorithm_bandwidth_gbs", GAUGE,
           "Algorithm bandwidth of collectives in GB/s over 30 s.", _COLLECTIVE, "nccl_"),
    Metric("collective_exec_time_microseconds", GAUGE,
           "Mean time of a collective on the GPU over 30 s.", _COLLECTIVE, "nccl_"),
    Metric("p2p_bus_bandwidth_gbs", GAUGE, "Bandwidth of sends and receives in GB/s over 30 s.",
           _PAIR, "nccl_"),
    Metric("p2p_exec_time_microseconds", GAUGE,
           "Mean time of a send or receive on the GPU over 30 s.", _PAIR, "nccl_"),
)  # fmt: skip
BY_NAME = {
    metric.name: metric for metric in (*METRICS, *INSPECTOR_METRICS, *SYSTEM_METRICS, *OWN_METRICS)
}


def size_class(size_bytes: int) -> str:
    """The name of the class that a size falls into."""
    for bound, name in zip(SIZE_BOUNDS_BYTES, SIZE_NAMES, strict=False):
        if size_bytes <= bound:
            return name
    return SIZE_NAMES[-1]
