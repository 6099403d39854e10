-- Bytes from rank to rank of sends and receives, those that make up an AlltoAll included. Both
-- ends report the same message: whoever was recorded.
select
    o.form as form,
    o.global_rank as global_rank,
    m.global_rank as peer_rank,
    o.node as node,
    m.node as peer_node,
    cast(count(*) as bigint) as messages,
    cast(sum(o.size_bytes) as bigint) as bytes
from operations o
left join members m on m.communicator = o.communicator and m.rank = o.peer
where o.form in ('send', 'recv') and o.state <> 'captured'
group by o.form, o.global_rank, m.global_rank, o.node, m.node
