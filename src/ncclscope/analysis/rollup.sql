-- The table `sums` by fewer keys. Communicator and function are always among them: the factor
-- between algorithm and bus bandwidth depends on both.
select
    {keys},
    source as source,
    cast(sum(calls) as bigint) as calls,
    cast(sum(operations) as bigint) as operations,
    cast(sum(in_flight) as bigint) as in_flight,
    cast(sum(bytes) as bigint) as bytes,
    cast(sum(timed) as bigint) as timed,
    cast(sum(timed_bytes) as bigint) as timed_bytes,
    cast(sum(duration_ns) as bigint) as duration_ns,
    cast(sum(sized_ns) as bigint) as sized_ns,
    min(shortest_ns) as shortest_ns,
    max(longest_ns) as longest_ns,
    cast(sum(wait_ns) as bigint) as wait_ns,
    cast(sum(waited_of_ns) as bigint) as waited_of_ns,
    cast(sum(relative_wait_ns) as bigint) as relative_wait_ns,
    cast(sum(relative_of_ns) as bigint) as relative_of_ns,
    cast(sum(wire_ns) as bigint) as wire_ns,
    cast(sum(wire_bytes) as bigint) as wire_bytes,
    max(inferred) as inferred
from sums
group by {keys}, source
