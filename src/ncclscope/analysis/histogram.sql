-- Durations in buckets 2 % wide: floor(50 ln(ns)). Kept apart from sums.sql, because few columns
-- over many groups and many columns over few groups are both quick, and many over many are not.
select
    {keys},
    source as source,
    cast(floor(ln(greatest(duration_ns, 1)) * 50) as int) as bucket,
    cast(count(*) as bigint) as operations,
    cast(sum(duration_ns) as bigint) as duration_ns
from operations
where part_of is null and duration_ns is not null
group by {keys}, source, cast(floor(ln(greatest(duration_ns, 1)) * 50) as int)
