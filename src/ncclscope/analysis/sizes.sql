-- Operations, bytes and GPU time by size of message.
select
    size_bytes as size_bytes,
    cast(sum(operations) as bigint) as operations,
    cast(sum(bytes) as bigint) as bytes,
    cast(sum(case when source in ({gpu_sources})
        then duration_ns else 0 end) as bigint) as gpu_ns
from sums
group by size_bytes
