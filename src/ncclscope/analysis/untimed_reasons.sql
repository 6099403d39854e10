-- Why operations lack a GPU time that can be believed as it is.
select
    source as source,
    reason as reason,
    cast(sum(case when state = 'captured' then replays else 1 end) as bigint) as operations
from operations
where part_of is null and source <> 'gpu' and state <> 'in flight'
    and (state <> 'captured' or replays > 0)
group by source, reason
