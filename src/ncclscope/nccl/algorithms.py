"""NCCL's algorithms and protocols, and whose stop stamps are exact."""

ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
# Both tuples are in the order of interface v1's numbers.

# In kernels of these algorithms thread 0, which writes the stop stamp, leaves last. In all others
# (TREE reduces upwards only, NVLS and CollNet have warps with other roles) the stamp comes early,
# so the time is a lower bound.
WITH_EXACT_STOP = ("RING", "PAT")
