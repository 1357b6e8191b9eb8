"""A hundred random models on kernels beside PyTorch; `fuzz_models.py` tries more of them."""

from __future__ import annotations

import pytest

from gnnbench.backends import isplib
from tests.support.fuzz.compare import difference
from tests.support.fuzz.play import CALLS, WAYS, Seed, open_gates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
def test_random_models_are_computed_as_by_torch(way: str) -> None:
    CALLS.clear()
    with open_gates():
        problems = {number: difference(Seed(number, way))[0] for number in range(2000, 2025)}
    assert not {number: problem for number, problem in problems.items() if problem}
    assert CALLS or isplib.MISSING
