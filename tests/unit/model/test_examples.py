"""Examples in the model's docstrings hold."""

import doctest

import pytest

from ncclscope.model.match import attempts, communicator_names


@pytest.mark.parametrize("module", [attempts, communicator_names])
def test_examples_in_docstrings_hold(module: object) -> None:
    ran = doctest.testmod(module)  # type: ignore[arg-type]
    assert ran.attempted > 0
    assert ran.failed == 0
