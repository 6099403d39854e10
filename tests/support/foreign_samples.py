"""Samples of other tools' files, made by hand after their documentation and source: keys, units and
layouts are theirs, numbers are ours. docs/imports.md says which tool each was taken from.
"""

import json
import sqlite3
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

EPOCH_US = 1_749_490_229_000_000
EPOCH_NS = EPOCH_US * 1000


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# ---- NCCL Inspector ----
def inspector_record(rank: int, sn: int, **changes: Any) -> dict[str, Any]:
    """A collective as Inspector 2.28 writes it."""
    record: dict[str, Any] = {
        "header": {"id": "0x9e7a479f95a66c", "rank": rank, "n_ranks": 4, "nnodes": 2},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "75e61acda-dirty",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": EPOCH_US + 1000 * sn,
            "hostname": f"node{rank // 2}",
            "pid": 100 + rank,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": sn,
            "coll_msg_size_bytes": 1 << 20,
            "coll_exec_time_us": 110 + rank,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 9.5,
            "coll_busbw_gbs": 14.2,
        },
    }
    record["coll_perf"] |= changes
    return record


def inspector_p2p(rank: int, peer: int, function: str = "Send") -> dict[str, Any]:
    """A send or receive as Inspector 2.30 writes it."""
    record = inspector_record(rank, 0)
    del record["coll_perf"]
    record["header"]["comm_name"] = "pp"
    record["p2p_perf"] = {
        "p2p": function, "p2p_sn": 3, "p2p_peer": peer, "p2p_msg_size_bytes": 4096,
        "p2p_exec_time_us": 20, "p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 0.2,
        "p2p_busbw_gbs": 0.2,
    }  # fmt: skip
    return record


def inspector_logs(folder: Path, calls: int = 10) -> Path:
    folder.mkdir()
    for rank in range(4):
        name = f"node{rank // 2}-pid{100 + rank}.log"
        write_lines(folder / name, (inspector_record(rank, sn) for sn in range(calls)))
    return folder


# ---- PyTorch Flight Recorder ----
def flight_recorder_entry(record_id: int, seq: int, **changes: Any) -> dict[str, Any]:
    entry = {
        "frames": [{"name": "train", "filename": "train.py", "line": 12}],
        "record_id": record_id,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_id": "1",
        "thread_name": "main",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": EPOCH_NS + 1_000_000 * record_id,
        "duration_ms": 0.25,
        "input_sizes": [[1024, 256]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1024, 256]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": EPOCH_NS + 1_000_000 * record_id + 1000,
        "time_discovered_completed_ns": EPOCH_NS + 1_000_000 * record_id + 500_000,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    return entry | changes


def flight_recorder_dump(entries: list[dict[str, Any]], ranks: str = "[0, 1, 2]") -> dict[str, Any]:
    return {
        "version": "2.10",
        "nccl_version": "2.27.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": 5}},
        "entries": entries,
    }


def hung_dump(rank: int) -> dict[str, Any]:
    """Five AllReduces; ranks 0 and 1 are in a sixth, which rank 2 never called."""
    entries = [flight_recorder_entry(n, n + 1) for n in range(5)]
    if rank < 2:
        last = flight_recorder_entry(5, 6, state=["started", "scheduled"][rank], retired=False)
        last |= {"time_discovered_completed_ns": None, "duration_ms": None}
        entries.append(last)
    return flight_recorder_dump(entries)


# ---- nccl-tests ----
def nccl_tests_result(**changes: Any) -> dict[str, Any]:
    """What `all_reduce_perf -J` of nccl-tests 2.17 writes."""
    devices = [
        {
            "rank": rank, "group": 0, "pid": 500 + rank, "hostname": f"node{rank // 2}",
            "device": rank % 2, "device_hex": f"0000:0{rank + 1}:00",
            "device_info": "NVIDIA H100 80GB HBM3",
        }
        for rank in range(4)
    ]  # fmt: skip
    document = {
        "version": 2,
        "start_time": "2026-11-15 06:00:00",
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "env": ["PATH=/bin"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1, "ngpus": 1, "minimum_bytes": 1024, "maximum_bytes": 2048,
            "step_factor": 2, "warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1,
            "validation": 1, "graph": 0, "blocking_collectives": "false",
            "parallel_init": "false", "devices": devices,
        },
        "results": [
            {
                "size": size, "count": size // 4, "type": "float", "redop": "sum",
                "root": "    -1",
                "out_of_place": {
                    "time": 12.5, "alg_bw": size / 12.5e3, "bus_bw": size / 12.5e3 * 1.5,
                    "nwrong": 0.0,
                },
                "in_place": {
                    "time": 10.0, "alg_bw": size / 10e3, "bus_bw": size / 10e3 * 1.5, "nwrong": 0.0,
                },
                "actual_iterations": 20,
                "experiment_name": "all_reduce_perf",
            }
            for size in (1024, 2048)
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 0.2, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-11-15 06:00:05",
    }  # fmt: skip
    return document | changes


# ---- CoMMA ----
def comma_record(seq: int, **changes: Any) -> dict[str, Any]:
    record = {
        "args": {"size": 20_971_520}, "cat": "COLL", "child_start_ts": EPOCH_US + 100 * seq + 10,
        "child_dur": 1456, "comm_hash": "0x58aecebabb9e37af", "dur": 11_039,
        "name": "all_reduce", "ph": "X", "rank": 0, "seq_num": seq, "ts": EPOCH_US + 100 * seq,
        "algo": "ring", "proto": "simple", "n_max_channel": 8,
        "proxyops": [
            {
                "cat": "PROXY", "chunk_size": 1_048_576, "dur": 1379, "is_send": False,
                "n_steps": 2, "name": "ProxyOp", "peer": 16, "ph": "X", "pid": 169,
                "ts": EPOCH_US + 100 * seq + 10,
                "steps": [{"end_time": 5, "size": 1_048_576, "start_time": 1, "step": 1}],
            }
        ],
    }  # fmt: skip
    return record | changes


# ---- ncclsee ----
NCCLSEE = """CollectiveType,BucketLabel,BucketMin,BucketMax,Calls,BytesTransferred,TotalTime_us
AllReduce,0-128,0,128,7,700,35.500000
AllReduce,>4194304,4194304,2147483647,2,20000001,400.250000
Group,N/A,0,0,9,0,12.000000
"""


def ncclsee_trace(rank: int) -> dict[str, Any]:
    """The paper's tracing mode: collectives with ranks, algorithm, protocol, size."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 70 + rank, "args": {"name": f"rank {rank}"}},
        {"ph": "X", "name": "other work", "pid": 70 + rank, "tid": 1, "ts": 1, "dur": 2},
    ]
    events += [
        {
            "ph": "X", "cat": "nccl", "name": "ncclAllReduce", "pid": 70 + rank, "tid": 1,
            "ts": 100.5 * n, "dur": 30.25,
            "args": {
                "comm": "0xfeed", "rank": rank, "nranks": 2, "algorithm": "RING",
                "protocol": "LL", "size": 4096, "datatype": "ncclFloat32", "seqnum": n,
            },
        }
        for n in range(5)
    ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def torch_trace(rank: int) -> dict[str, Any]:
    """A trace of PyTorch's profiler, cut down to what matters."""
    kernel = {
        "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)",
        "pid": 0, "tid": 20, "ts": 1000.0, "dur": 80.0,
        "args": {
            "Collective name": "_allgather_base", "In msg nelems": 256, "Out msg nelems": 1024,
            "Group size": 4, "dtype": "BFloat16", "Process Group Name": "1",
            "Process Group Description": "tp", "Process Group Ranks": "[0, 1, 2, 3]", "stream": 20,
            "Seq": 17,
        },
    }  # fmt: skip
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
        "baseTimeNanoseconds": EPOCH_NS,
        "traceEvents": [
            kernel,
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5},
        ],
    }


# ---- Nsight Systems ----
_PROCESS = 0x0100_0000_0001_0000_00  # hardware and VM in the upper bits
NSYS_PID = 4321
GLOBAL_PID = (0x11 << 48) | (NSYS_PID << 24)
NSYS_COMM = 0xABCD_EF01_2345_6789


def nsys_tables(database: sqlite3.Connection) -> None:
    database.executescript("""
        create table StringIds (id integer not null primary key, value text not null);
        create table NVTX_EVENTS (start integer not null, end integer, eventType integer,
            rangeId integer, category integer, color integer, text text, globalTid integer,
            endGlobalTid integer, textId integer, domainId integer, uint64Value integer,
            int64Value integer, doubleValue real, uint32Value integer, int32Value integer,
            floatValue real, jsonTextId integer, jsonText text, binaryData text);
        create table NVTX_PAYLOAD_SCHEMAS (domainId integer, schemaId integer, name text,
            type integer, flags integer, numEntries integer, payloadSize integer, alignTo integer);
        create table NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId integer not null,
            schemaId integer not null, idx integer not null, flags integer, type integer,
            name text, description text, arrayOrUnionDetail integer, offset integer);
        create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer not null, end integer not null,
            eventClass integer not null, globalTid integer, correlationId integer,
            nameId integer not null, returnValue integer not null, callchainId integer);
        create table CUPTI_ACTIVITY_KIND_KERNEL (start integer not null, end integer not null,
            deviceId integer not null, contextId integer not null, streamId integer not null,
            correlationId integer, globalPid integer, demangledName integer not null,
            shortName integer not null, mangledName integer);
        create table TARGET_INFO_SYSTEM_ENV (globalVid integer, devStateName text, name text,
            nameEnum integer, value text);
        create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer, utcTime text,
            localTime text);
        """)


def nsys_payload(schema: int, data: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(data), 32 + len(data)) + data


def nsys_export(path: Path) -> Path:
    """Two ranks' worth of one process: init, AllReduce, AllGather, a group of Send and Recv, one
    kernel without a range.
    """
    with sqlite3.connect(path) as database:
        nsys_tables(database)
        names = [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_SendRecv", "gemm",
            "ncclAllGather", "ncclDevKernel_Broadcast_RING_LL", "cudaLaunchKernelExC_v11060",
        ]  # fmt: skip
        database.executemany("insert into StringIds values (?, ?)", list(enumerate(names, 1)))
        entries = [
            (7, 18, "NCCL communicator ID", None), (7, 5, "No. of ranks", 8), (7, 5, "Rank", 12),
            (8, 18, "NCCL communicator ID", None), (8, 22, "Message size [bytes]", 8),
            (8, 12345, "Reduction operation", 16),
            (9, 18, "NCCL communicator ID", None), (9, 22, "Message size [bytes]", 8),
            (9, 5, "Peer rank", 16),
        ]  # fmt: skip
        database.executemany(
            "insert into NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, idx, type, name, offset) "
            "values (1, ?, 0, ?, ?, ?)",
            entries,
        )
        thread = GLOBAL_PID | 77
        init = nsys_payload(7, struct.pack("<Qii", NSYS_COMM, 4, 2))
        reduce = nsys_payload(8, struct.pack("<QQi", NSYS_COMM, 1 << 20, 0))
        pair = nsys_payload(9, struct.pack("<QQi", NSYS_COMM, 4096, 3))
        ranges = [
            (10, 20, "ncclCommInitRank", None, init),
            (1000, 1100, "ncclAllReduce", None, reduce.hex()),
            (2000, 2100, None, 4, reduce),
            (3000, 3010, "ncclGroupStart", None, None),
            (3020, 3030, "ncclSend", None, pair),
            (3040, 3050, "ncclRecv", None, pair),
            (3060, 3200, "ncclGroupEnd", None, None),
            (990, 1200, "nccl:all_reduce", None, None),
            (5000, 5100, "ncclAllReduce", None, reduce),
        ]
        database.executemany(
            "insert into NVTX_EVENTS (start, end, text, textId, binaryData, globalTid, domainId, "
            f"eventType) values (?, ?, ?, ?, ?, {thread}, 1, 59)",
            ranges,
        )
        launches = [(1050, 1), (2050, 2), (3100, 3), (4000, 4), (4500, 5)]
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, 0, ?, ?, 6, 0, null)",
            [(start, start + 5, thread, number) for start, number in launches]
            + [(9, 10, (0x11 << 48) | (99 << 24) | 1, 1)],  # another process's number 1
        )
        kernels = [
            (1500, 1900, 1, 1), (2500, 2600, 2, 1), (3500, 3900, 3, 2), (4100, 4200, 4, 5),
            (4600, 4700, 5, 3),
        ]  # fmt: skip
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 1, 13, ?, ?, ?, ?, null)",
            [(s, e, number, GLOBAL_PID, name, name) for s, e, number, name in kernels],
        )
        database.execute(
            "insert into TARGET_INFO_SYSTEM_ENV values (0, 'x', 'Hostname', 1, 'node7')"
        )
        database.execute(
            "insert into TARGET_INFO_SESSION_START_TIME values (?, '', '')", (EPOCH_NS,)
        )
    database.close()
    return path


# ---- NCCL's log ----
NCCL_LOG = """\
node-a:1001:1001 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
NCCL version 2.28.9+cuda13.0
node-a:1001:1020 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5.
node-a:1001:1020 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB/SHARP [RO]; OOB eth0:10.0.0.1<0>
node-a:1001:1020 [0] NCCL INFO Using network IB
node-a:1001:1020 [0] NCCL INFO ncclCommInitRank comm 0x55d900e4a6c0 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId ba000 commId 0xd8289d3e6e217d26 - Init START
node-a:1002:1021 [1] NCCL INFO ncclCommInitRank comm 0x55d900e4a6c1 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId bb000 commId 0xd8289d3e6e217d26 - Init START
node-b:1001:1022 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.2<0>
node-b:1001:1022 [0] NCCL INFO ncclCommInitRank comm 0x55d900e4a6c2 rank 2 nranks 4 cudaDev 0 nvmlDev 0 busId ba000 commId 0xd8289d3e6e217d26 - Init START
node-b:1002:1023 [1] NCCL INFO ncclCommInitRank comm 0x55d900e4a6c3 rank 3 nranks 4 cudaDev 1 nvmlDev 1 busId bb000 commId 0xd8289d3e6e217d26 - Init START
node-a:1001:1020 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 48.000000/48.000000, type NVL/PIX, sameChannels 1
node-a:1001:1020 [0] NCCL INFO comm 0x55d900e4a6c0 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0
node-a:1001:1020 [0] NCCL INFO Channel 00/02 :    0   1   2   3
node-a:1001:1020 [0] NCCL INFO Channel 01/02 :    0   3   2   1
node-a:1001:1020 [0] NCCL INFO Trees [0] 1/2/-1->0->-1 [1] 1/-1/-1->0->2
node-a:1002:1021 [1] NCCL INFO Trees [0] -1/-1/-1->1->0 [1] -1/-1/-1->1->0
node-b:1001:1022 [0] NCCL INFO Trees [0] 3/-1/-1->2->0 [1] 3/0/-1->2->-1
node-a:1001:1020 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA
node-a:1001:1020 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node-a:1001:1020 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
node-a:1002:1021 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/1(0)/GDRDMA
node-b:1001:1022 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[1] via SHM/direct/direct
node-b:1001:1022 [0] NCCL INFO Channel 01/0 : 2[0] -> 3[1] via P2P/IPC
node-b:1002:1023 [1] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/0/GDRDMA
node-a:1001:1020 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer
node-a:1001:1001 [0] NCCL INFO AllReduce: 262144 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
node-a:1001:1001 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
node-a:1001:1001 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7fc9c4000000 recvbuff 0x7fc9bc000000 count 65536 datatype 7 op 0 root 0 comm 0x55d900e4a6c0 [nranks=4] stream 0x5631f0021140
node-a:1002:1001 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x7fc9c4000000 recvbuff 0x7fc9bc000000 count 65536 datatype 7 op 0 root 0 comm 0x55d900e4a6c1 [nranks=4] stream 0x5631f0021140
node-a:1001:1001 [0] NCCL INFO AllGather: opCount 1 sendbuff 0x7fc9c4000000 recvbuff 0x7fc9bc000000 count 256 datatype 9 op 0 root 0 comm 0x55d900e4a6c0 [nranks=4] stream 0x5631f0021140
node-a:1001:1001 [0] NCCL INFO Send: opCount 2 sendbuff (nil) recvbuff 0x7fc9bc000000 count 128 datatype 1 op 0 root 3 comm 0x55d900e4a6c0 [nranks=4] stream 0x5631f0021140

[2026-05-05 06:16:47] node-b:1002:1099 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<55921> with status=12 <b>vendor err 129</b>
node-b:1002:1099 [1] NCCL INFO NET/IB : No device found.
a line of the application: NCCL is mentioned in it
"""
# Releases 2.4 to 2.8 and sockets: rings by neighbours, no hash, bus ids in brackets, numbers.
OLD_LOG = """\
[155] ip-1:45293:45298 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.0.1<0>
[155] ip-1:45293:45298 [0] NCCL INFO NCCL version 2.8.3+cuda10.2
[155] ip-1:45293:45298 [0] NCCL INFO comm 0x7f145c002250 rank 0 nranks 3 cudaDev 0 nvmlDev 0 - Init COMPLETE
[155] ip-2:45293:45299 [0] NCCL INFO comm 0x7f145c002251 rank 1 nranks 3 cudaDev 0 nvmlDev 0 - Init COMPLETE
[155] ip-3:45293:45299 [0] NCCL INFO comm 0x7f145c002252 rank 2 nranks 3 cudaDev 0 nvmlDev 0 - Init COMPLETE
[155] ip-1:45293:45298 [0] NCCL INFO Ring 00 : 2 -> 0 -> 1
[155] ip-2:45293:45299 [0] NCCL INFO Ring 00 : 0 -> 1 -> 2
[155] ip-3:45293:45299 [0] NCCL INFO Ring 00 : 1 -> 2 -> 0
[155] ip-1:45293:45298 [0] NCCL INFO Ring 00 : 0 -> 1 [send] via NET/Socket/0
[155] ip-2:45293:45299 [0] NCCL INFO Ring 00 : 1[3d000] -> 2[b2000] via P2P/IPC/read
[155] ip-1:45293:45298 [0] NCCL INFO 1026048 Bytes -> Algo 1 proto 2 time 34.693867
"""
# A split communicator has no hash in the log: it is known by its parent and colour.
SPLIT_LOG = """\
a:1:11 [0] NCCL INFO ncclCommInitRank comm 0x10 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc - Init START
a:2:22 [1] NCCL INFO ncclCommInitRank comm 0x20 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0xabc - Init START
a:1:11 [0] NCCL INFO ncclCommSplit comm 0x11 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 parent 0x10 splitCount 1 color 5 key 0- Init START
a:2:22 [1] NCCL INFO ncclCommSplit comm 0x21 rank 0 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 parent 0x20 splitCount 1 color 5 key 0- Init START
a:1:11 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[1] via P2P/IPC
a:1:11 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 10 datatype 7 op 0 root 0 comm 0x11 [nranks=2] stream 0x3
a:2:22 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 10 datatype 7 op 0 root 0 comm 0x21 [nranks=2] stream 0x3
"""
