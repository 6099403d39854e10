"""Communicators of one dimension are peers, whatever they are called."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import Kernels, kernels_of
from ncclscope.model.model import Model
from tests.support.laboratory.kinds import all_kinds


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("job") / "c"
    all_kinds()["dp 8 x tp 2, healthy"].write(path, 1)
    return ncclscope.open(str(path)).model


def kernels(model: Model, name_of: Callable[[str], str] = str) -> Kernels:
    names = [name_of(name) for name in model.communicator_names]
    made = kernels_of(Run(replace(model, communicator_names=names)))
    assert made is not None
    return made


def numbered(name: str) -> str:
    """`tp#3` as `tp3_0`, `tp` as `tp1_0`."""
    word, _, number = name.partition("#")
    return name if word == "world" else f"{word}{number or 1}_0"


def test_numbers_in_names_tell_parts_of_one_dimension_apart(model: Model) -> None:
    """Otherwise each rank is the only one of its kind, and nobody is late."""
    usual, renamed = kernels(model), kernels(model, numbered)
    np.testing.assert_array_equal(renamed.kind, usual.kind)
    np.testing.assert_array_equal(renamed.communicator_class, usual.communicator_class)


def test_communicators_of_the_same_ranks_are_told_apart_by_numbers(tmp_path: Path) -> None:
    """As of the layers of a model: each has a place of its own in a step."""
    all_kinds()["100 communicators, healthy"].write(tmp_path / "c", 1)
    model = ncclscope.open(str(tmp_path / "c")).model
    places = {name: number for number, name in enumerate(model.communicator_names)}
    classes = kernels(model, lambda name: f"layer{places[name]}").communicator_class
    assert len(np.unique(classes)) == len(classes)
