"""Data parallelism in JAX, one process per GPU, with NVTX ranges for steps.

`ncclscope run --nvtx -- torchrun --nproc-per-node 2 examples/jax_data_parallel.py`, or any launcher
that sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. XLA calls NCCL by itself. JAX
says nothing about steps, so the program marks them with NVTX (`pip install jax[cuda13] nvtx`).
"""

import os
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import nvtx
from jax.sharding import NamedSharding, PartitionSpec

STEPS, WIDTH, DEPTH, BATCH = int(os.environ.get("STEPS", "20")), 256, 4, 16
Weights = Mapping[str, jax.Array]


def loss_of(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error of a small residual network."""
    for layer in range(DEPTH):
        x = x + jax.nn.relu(x @ weights[f"up{layer}"]) @ weights[f"down{layer}"]
    return jnp.mean((x - y) ** 2)


@jax.jit
def train_step(weights: Weights, x: jax.Array, y: jax.Array) -> Weights:
    """Gradients of a sharded batch: XLA adds the AllReduce."""
    gradients = jax.grad(loss_of)(weights, x, y)
    return jax.tree.map(lambda weight, gradient: weight - 1e-3 * gradient, weights, gradients)


rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if world > 1:
    address = f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}"
    local = [int(os.environ["LOCAL_RANK"]) % int(os.environ.get("GPUS", str(world)))]
    jax.distributed.initialize(address, world, rank, local_device_ids=local)
mesh = jax.make_mesh((jax.device_count(),), ("data",))
everywhere, sharded = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
keys = jax.random.split(jax.random.key(0), DEPTH)
weights: Weights = {
    f"{name}{layer}": jax.device_put(0.02 * jax.random.normal(keys[layer], shape), everywhere)
    for layer in range(DEPTH)
    for name, shape in (("up", (WIDTH, 4 * WIDTH)), ("down", (4 * WIDTH, WIDTH)))
}
own = jax.random.normal(jax.random.key(rank), (BATCH, WIDTH))
batch = jax.make_array_from_process_local_data(sharded, own)
for step in range(STEPS):
    with nvtx.annotate(f"step {step}"):
        weights = train_step(weights, batch, batch)
        jax.block_until_ready(weights)
print(f"rank {rank}: {STEPS} steps on {jax.device_count()} devices")
