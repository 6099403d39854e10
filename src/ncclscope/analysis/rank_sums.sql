-- What each rank did and how long it waited for others.
select
    global_rank as global_rank,
    node as node,
    cast(sum(case when state = 'captured' then coalesce(replays, 0) else 1 end) as bigint)
        as operations,
    cast(sum(case when state = 'captured' then coalesce(replays, 0) * size_bytes
        else size_bytes end) as bigint) as bytes,
    cast(sum(wait_ns) as bigint) as wait_ns,
    cast(sum(case when wait_ns is null then 0 else duration_ns end) as bigint) as waited_of_ns
from operations
where part_of is null
group by global_rank, node
