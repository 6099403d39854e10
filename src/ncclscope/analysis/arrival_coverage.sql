-- Instances whose arrivals could be compared at all, by communicator.
select
    communicator as communicator,
    cast(count(*) as bigint) as compared,
    cast(sum(case when last_communicator_rank is null then 0 else 1 end) as bigint) as certain,
    cast(sum(skew_ns) as bigint) as skew_ns,
    max(error_ns) as error_ns
from instances
where skew_ns is not null
group by communicator
