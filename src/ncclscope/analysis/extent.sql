-- When the first operation began and the last one ended, as far as is known.
select
    min(coalesce(call_ns, launch_ns, start_ns, enqueue_ns)) as first_ns,
    max(coalesce(end_ns, launch_end_ns, call_end_ns, enqueue_ns, call_ns)) as last_ns,
    count(*) as operations
from operations
