"""Dimensions of parallelism: what communicators are for, from what programs call them.

PyTorch 2.14 and later names communicators `description:name` itself; before, the attached file
lists the process groups. DeviceMesh, Megatron and vLLM have their own words.
"""

import re
from collections.abc import Iterable

# Parts of Megatron's descriptions of process groups (Megatron-LM at 00caa53a); the longest that a
# description has counts, as in INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP.
_MEGATRON = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "MODEL_PARALLEL_GROUP": "tp-pp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp-cp",
    "HYBRID_DP_CP_GROUP": "dp-cp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp-dp",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp-dp-cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp-cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "etp-ep",
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": "etp-ep-pp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": "optimizer",
    "EMBEDDING_GROUP": "emb",
    "POSITION_EMBEDDING_GROUP": "emb",
}
# PyTorch's names of groups without one, and of a DeviceMesh whose dimensions have none.
_NAMELESS = ("", "undefined", "default_pg", "mesh_dim", "mesh_default")
_NUMBERED = re.compile(r"(.+?)[:_#]\d+(?:[-,/…\d]*)$")
# What experts, Megatron's optimizer and vLLM's group of all ranks have beside what the whole model
# has: of the same ranks, no news.
_PLAIN = ("dp", "tp", "pp", "cp", "ep", "edp", "dcp", "pcp")
_SAME_AS = {"edp": ("dp", "cp"), "etp": ("tp",), "optimizer": _PLAIN, "world": _PLAIN}


def dimension_of(name: str) -> str:
    """The dimension in a communicator's name or a process group's description; "" without one.

    >>> [dimension_of(name) for name in ("mesh_tp:3", "CONTEXT_PARALLEL_GROUP", "default_pg")]
    ['tp', 'cp', '']
    """
    numbered = _NUMBERED.fullmatch(name)
    text = numbered[1] if numbered else name
    if text in _NAMELESS:
        return ""
    known = max((part for part in _MEGATRON if part in text), key=len, default="")
    if known:
        return "" if "GLOO" in text else _MEGATRON[known]  # on CPUs, beside one of the same ranks
    return text.removeprefix("mesh_")


def joined_dimension(descriptions: Iterable[str]) -> str:
    """One dimension of several process groups with the same ranks. A group of several dimensions
    whose others have one rank is no other dimension: Megatron makes all of them.

    >>> joined_dimension(["mesh_dp", "mesh_cp", "mesh_dp"])
    'dp+cp'
    >>> joined_dimension(["DATA_PARALLEL_GROUP_WITH_CP", "DATA_PARALLEL_GROUP"])
    'dp'
    """
    found = list(dict.fromkeys(filter(None, map(dimension_of, descriptions))))
    single = {name for name in found if "-" not in name}
    fewest = min((name.count("-") for name in found if "-" in name), default=0)

    def is_news(name: str) -> bool:
        if "-" in name:
            return name.count("-") == fewest and single.isdisjoint(name.split("-"))
        return single.isdisjoint(_SAME_AS.get(name, ()))

    return "+".join(filter(is_news, found))
