"""A graph in parts, on processes that exchange features, computes what one process does."""

from __future__ import annotations

import pytest

from gnnbench.backends import isplib
from tests.support import parts
from tests.support.ranks import Ranks

over_cases = pytest.mark.parametrize("case", parts.SIZES)
over_backends = pytest.mark.parametrize("backend", parts.KERNELS)


@over_cases
def test_columns_loops_and_sources_are_those_of_the_whole_graph(case: str, ranks: Ranks) -> None:
    ranks.run(parts.structure, case)


@over_cases
@over_backends
def test_aggregations_are_equal_in_every_bit(case: str, backend: str, ranks: Ranks) -> None:
    """With dropout, whose mask each process draws of its own nodes."""
    check(ranks, case, backend, [*parts.EXACT], exact=True, transform_first=True, fold_norm=True)


@over_cases
@over_backends
def test_attention_differs_by_rounding(case: str, backend: str, ranks: Ranks) -> None:
    check(ranks, case, backend, [*parts.ATTENTION], exact=False, transform_first=True, fold_norm=True)


@over_backends
def test_without_rewrites(backend: str, ranks: Ranks) -> None:
    check(ranks, "hub", backend, [*parts.EXACT], exact=True, transform_first=False, fold_norm=False)


def check(ranks: Ranks, case: str, backend: str, names: list[str], exact: bool, **rewrites: bool) -> None:
    if backend == "isplib" and isplib.MISSING:
        pytest.skip(f"the kernels are not built: {isplib.MISSING}")
    for rank, results in enumerate(ranks.run(parts.agreement, case, backend, names, rewrites)):
        for name, (equal, out, grad_x, grads) in results.items():
            assert equal or not exact, (name, rank, out)
            assert out <= 1e-14, (name, rank)
            assert max(grad_x, grads) <= 1e-12, (name, rank)
