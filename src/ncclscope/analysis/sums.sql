-- Operations summed up by keys and source. Calls recorded into a CUDA graph are calls; their
-- replays are operations: rows of their own, or counted in `replays`.
select
    {keys},
    source as source,
    cast(sum(case when replay = 1 then 0 else 1 end) as bigint) as calls,
    cast(sum(case when state = 'captured' then coalesce(replays, 0) else 1 end) as bigint)
        as operations,
    cast(sum(case when state = 'in flight' then 1 else 0 end) as bigint) as in_flight,
    cast(sum(case when state = 'captured' then coalesce(replays, 0) * size_bytes
        else size_bytes end) as bigint) as bytes,
    cast(sum(case when duration_ns is null then 0 else 1 end) as bigint) as timed,
    cast(sum(case when duration_ns is null then 0 else size_bytes end) as bigint) as timed_bytes,
    cast(sum(duration_ns) as bigint) as duration_ns,
    cast(sum(case when size_bytes is null then 0 else duration_ns end) as bigint) as sized_ns,
    min(duration_ns) as shortest_ns,
    max(duration_ns) as longest_ns,
    cast(sum(wait_ns) as bigint) as wait_ns,
    cast(sum(case when wait_ns is null then 0 else duration_ns end) as bigint) as waited_of_ns,
    cast(sum(relative_wait_ns) as bigint) as relative_wait_ns,
    cast(sum(case when relative_wait_ns is null then 0 else duration_ns end) as bigint)
        as relative_of_ns,
    cast(sum(case when size_bytes is null then 0 else wire_ns end) as bigint) as wire_ns,
    cast(sum(case when wire_ns is null then 0 else size_bytes end) as bigint) as wire_bytes,
    max(inferred) as inferred
from operations
where part_of is null
group by {keys}, source
