"""Examples that `--help` shows, by verb."""

EXAMPLES = {
    "run": (
        "ncclscope run -- torchrun --nproc-per-node 8 train.py",
        "ncclscope run -o /shared/captures/job1 --system -- srun ./train",
    ),
    "report": (
        "ncclscope report job",
        "ncclscope report job --by rank --comm 'dp*' --last 5m",
        "ncclscope report job --html report.html",
    ),
    "status": (
        "ncclscope status job",
        "ncclscope status job --stacks",
        "ncclscope status job --watch 5",
    ),
    "diagnose": (
        "ncclscope diagnose job",
        "ncclscope diagnose job --baseline bench.json --fail-on warning",
    ),
    "whatif": (
        "ncclscope whatif job --without rank 2",
        "ncclscope whatif job --comm dp at 100 GB/s",
    ),
    "compare": (
        "ncclscope compare before after",
        "ncclscope compare before1 before2 -- after1 after2 --gate",
    ),
    "history": (
        "ncclscope history add /shared/history job",
        "ncclscope history trend /shared/history",
        "ncclscope history diff /shared/history --last 20",
    ),
    "top": ("ncclscope top", "ncclscope top /shared/captures/job1"),
    "serve": (
        "ncclscope serve",
        "ncclscope serve /shared/captures --host 0.0.0.0 --system",
        "ncclscope serve --on-hang '/opt/site/page-somebody ml'",
    ),
    "dashboards": ("ncclscope dashboards -o monitoring",),
    "ctl": ("ncclscope ctl job --mode full --seconds 10",),
    "dump": ("ncclscope dump job --rank 0 --event Coll", "ncclscope dump job --json"),
    "timeline": ("ncclscope timeline job", "ncclscope timeline job --html timeline.html"),
    "export": (
        "ncclscope export job --to perfetto -o job.pftrace",
        "ncclscope export job --to parquet -o tables",
    ),
    "import": ("ncclscope import /tmp/nccl_trace_rank_* -o dumps",),
    "bench": (
        "ncclscope bench all_reduce -b 8 -e 1G -f 2 --ranks 8",
        "ncclscope bench all_reduce --simulate",
    ),
    "overhead": ("ncclscope overhead -- torchrun --nproc-per-node 8 train.py",),
    "doctor": ("ncclscope doctor",),
    "ls": ("ncclscope ls", "ncclscope ls /shared/captures --json"),
    "prune": ("ncclscope prune /shared/captures --older-than 7d --keep 100G --dry-run",),
    "pack": ("ncclscope pack job -o job.tar.gz",),
    "decode": ("ncclscope decode /shared/captures/job --remove-raw",),
    "salvage": ("ncclscope salvage",),
    "demo": ("ncclscope demo", "ncclscope demo --scenario hang.toml"),
    "env": ("ncclscope env --mode profile",),
    "plugin-path": ("export NCCL_PROFILER_PLUGIN=$(ncclscope plugin-path)",),
    "completion": ("source <(ncclscope completion bash)", "source <(ncclscope completion zsh)"),
}
