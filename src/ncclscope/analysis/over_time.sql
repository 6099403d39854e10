-- Operations and bytes by communicator and slice of time in which they began.
select
    communicator as communicator,
    cast(floor(({began_ns} - {origin_ns}) / {width_ns}.0) as bigint) as slice,
    cast(count(*) as bigint) as operations,
    cast(sum(size_bytes) as bigint) as bytes
from operations
where part_of is null and state <> 'captured' and {began_ns} is not null
group by communicator, cast(floor(({began_ns} - {origin_ns}) / {width_ns}.0) as bigint)
