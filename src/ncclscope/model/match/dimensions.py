"""Dimensions of parallelism: what communicators are for, from what programs call them.

PyTorch 2.14 and later names communicators `description:name` itself; before, the attached file
lists the process groups. DeviceMesh, Megatron and vLLM have their own words.
"""

import re
from collections.abc import Iterable

# Megatron's descriptions of process groups.
_MEGATRON = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "MODEL_PARALLEL_GROUP": "tp-pp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp-cp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "EMBEDDING_GROUP": "emb",
    "POSITION_EMBEDDING_GROUP": "emb",
}
_NAMELESS = ("", "undefined", "default_pg")
_NUMBERED = re.compile(r"(.+?)[:_#]\d+(?:[-,/…\d]*)$")


def dimension_of(name: str) -> str:
    """The dimension in a communicator's name or a process group's description; "" without one.

    >>> [dimension_of(name) for name in ("mesh_tp:3", "CONTEXT_PARALLEL_GROUP", "default_pg")]
    ['tp', 'cp', '']
    """
    numbered = _NUMBERED.fullmatch(name)
    text = numbered[1] if numbered else name
    if text in _NAMELESS:
        return ""
    return _MEGATRON.get(text, text.removeprefix("mesh_"))


def joined_dimension(descriptions: Iterable[str]) -> str:
    """One dimension of several process groups with the same ranks.

    >>> joined_dimension(["mesh_dp", "mesh_cp", "mesh_dp"])
    'dp+cp'
    """
    return "+".join(dict.fromkeys(filter(None, map(dimension_of, descriptions))))
