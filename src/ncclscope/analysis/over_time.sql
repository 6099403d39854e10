-- Operations and bytes by communicator and slice of time in which they began.
select
    communicator as communicator,
    cast(floor((coalesce(start_ns, launch_ns, call_ns, enqueue_ns) - {origin_ns})
        / {width_ns}.0) as bigint) as slice,
    cast(count(*) as bigint) as operations,
    cast(sum(size_bytes) as bigint) as bytes
from operations
where part_of is null and state <> 'captured'
    and coalesce(start_ns, launch_ns, call_ns, enqueue_ns) is not null
group by communicator, cast(floor((coalesce(start_ns, launch_ns, call_ns, enqueue_ns)
    - {origin_ns}) / {width_ns}.0) as bigint)
