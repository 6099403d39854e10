-- Why operations lack a GPU time that can be believed as it is.
select
    source as source,
    reason as reason,
    cast(count(*) as bigint) as operations
from operations
where part_of is null and state not in ('captured', 'in flight') and source <> 'gpu'
group by source, reason
