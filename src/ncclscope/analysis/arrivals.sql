-- Which rank the others waited for: skew of instances whose last arriver is certain.
select
    i.communicator as communicator,
    m.global_rank as global_rank,
    m.node as node,
    cast(count(*) as bigint) as times_last,
    cast(sum(i.skew_ns) as bigint) as skew_ns,
    max(i.skew_ns) as longest_skew_ns
from instances i
join members m on m.communicator = i.communicator and m.rank = i.last_rank
where i.last_rank is not null and i.skew_ns is not null
group by i.communicator, m.global_rank, m.node
