-- Median and 99th percentile (as measures.py defines them) of each group, by grade of the times: 0 the GPU's, 1 the proxy's,
-- 2 the host's, 3 the time of the call. A percentile is the mean of the bucket it falls into.
with graded as (
    select
        {keys},
        {grade} as grade,
        bucket as bucket,
        operations as operations,
        duration_ns as duration_ns
    from histogram
),
buckets as (
    select
        {keys},
        grade as grade,
        bucket as bucket,
        cast(sum(operations) as bigint) as operations,
        cast(sum(duration_ns) as bigint) as duration_ns
    from graded
    group by {keys}, grade, bucket
),
running as (
    select
        {keys},
        grade as grade,
        cast(duration_ns as double) / operations as typical_ns,
        sum(operations) over (
            partition by {keys}, grade order by bucket
            rows between unbounded preceding and current row) as until_here,
        sum(operations) over (partition by {keys}, grade) as total
    from buckets
    where operations > 0
)
select
    {keys},
    grade as grade,
    min(case when 2 * until_here >= total then typical_ns else null end) as median_ns,
    min(case when 100 * until_here >= 99 * total then typical_ns else null end) as p99_ns
from running
group by {keys}, grade
