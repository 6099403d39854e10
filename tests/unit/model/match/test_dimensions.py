"""Dimensions of communicators, by the names that libraries give to their process groups."""

from itertools import product

import pytest

from ncclscope.model.match.dimensions import dimension_of, joined_dimension

# What Megatron-LM (at 00caa53a, `initialize_model_parallel`) makes of each rank, in its order: the
# description and the dimensions that it spans. Gloo's are made beside some of them.
_MEGATRON = (
    ("DATA_PARALLEL_GROUP_WITH_CP", "dp cp"),
    ("DATA_PARALLEL_GROUP_WITH_CP_AG", "dp cp"),
    ("DATA_PARALLEL_GROUP_WITH_CP_GLOO", "dp cp"),
    ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "dp cp"),
    ("DATA_PARALLEL_GROUP", "dp"),
    ("DATA_PARALLEL_GROUP_GLOO", "dp"),
    ("CONTEXT_PARALLEL_GROUP", "cp"),
    ("MODEL_PARALLEL_GROUP", "tp pp"),
    ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
    ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
    ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "tp dp cp"),
    ("TENSOR_AND_DATA_PARALLEL_GROUP", "tp dp"),
    ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", "tp cp"),
    ("EXPERT_TENSOR_PARALLEL_GROUP", "tp"),
    ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", "tp pp"),
    ("EXPERT_DATA_PARALLEL_GROUP", "dp cp"),
    ("EXPERT_DATA_PARALLEL_GROUP_GLOO", "dp cp"),
    ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "tp cp dp pp"),
)
_ORDER = ("tp", "cp", "dp", "pp")  # Megatron's, the fastest first


def _megatron(sizes: dict[str, int]) -> dict[tuple[int, ...], str]:
    """Dimensions of the groups of rank 0 of a dense model, by their ranks."""
    by_ranks: dict[tuple[int, ...], list[str]] = {}
    for description, spans in _MEGATRON:
        inside = [range(sizes.get(name, 1)) if name in spans.split() else (0,) for name in _ORDER]
        ranks = []
        for place in product(*inside):
            rank, stride = 0, 1
            for name, at in zip(_ORDER, place, strict=True):
                rank, stride = rank + at * stride, stride * sizes.get(name, 1)
            ranks.append(rank)
        by_ranks.setdefault(tuple(sorted(ranks)), []).append(description)
    return {ranks: joined_dimension(found) for ranks, found in by_ranks.items() if len(ranks) > 1}


@pytest.mark.parametrize(("name", "ranks"), [("dp", 8), ("tp", 8), ("pp", 4), ("cp", 2)])
def test_one_dimension_of_megatron_has_its_plain_name(name: str, ranks: int) -> None:
    """Every other group of the same ranks is the same dimension."""
    assert _megatron({name: ranks}) == {tuple(range(ranks)): name}


def test_dimensions_of_megatron_beside_each_other() -> None:
    assert _megatron({"tp": 2, "dp": 2, "pp": 2}) == {
        (0, 1): "tp",
        (0, 2): "dp",
        (0, 4): "pp",
        (0, 1, 4, 5): "tp-pp",
        (0, 1, 2, 3): "tp-dp",
        (0, 1, 2, 3, 4, 5, 6, 7): "optimizer",
    }


def test_experts_of_megatron_have_their_own_dimensions() -> None:
    """Where ranks differ from those of the rest of the model."""
    names = ("EXPERT_MODEL_PARALLEL_GROUP", "EXPERT_DATA_PARALLEL_GROUP",
             "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP")  # fmt: skip
    assert [joined_dimension([name]) for name in names] == ["ep", "edp", "etp-ep"]
    assert joined_dimension(["HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1"]) == "cp"


def test_names_of_vllm() -> None:
    """`vllm.distributed.parallel_state._groups` of its releases with dcp and pcp, 2025 and later."""
    named = {"tp:0": "tp", "pp:0": "pp", "dp:0": "dp", "ep:0": "ep", "dcp:0": "dcp", "pcp:1": "pcp"}
    assert {name: dimension_of(name) for name in named} == named
    assert joined_dimension(["world:0", "tp:0"]) == "tp"


def test_names_of_a_device_mesh() -> None:
    """PyTorch 2.13: `mesh_NAME`; `mesh_dim_0` where the program gave none."""
    named = {"mesh_tp": "tp", "mesh_dp_shard": "dp_shard", "mesh_cp:17": "cp", "mesh_dim_0": ""}
    assert {name: dimension_of(name) for name in named} == named
    assert joined_dimension(["default_pg", "mesh_default"]) == ""
