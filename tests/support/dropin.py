"""Give tests of the drop-in its backend here, and PyG as it was after each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch.nn.functional as F
from torch_geometric import nn as pyg
from torch_geometric import utils

import gnnbench
from gnnbench import convs, patch
from gnnbench.backends import isplib
from gnnbench.patch.policy import Policy
from gnnbench.patch.status import TALLY

BACKEND = "reference" if isplib.MISSING else "isplib"


def functions() -> list[Any]:
    """Return what the patch replaces: forwards of convs, and functions where they are defined and imported."""
    forwards = [getattr(pyg, name).forward for name in convs.table()]
    return [
        *forwards,
        F.dropout,
        utils.softmax,
        utils.spmm,
        pyg.conv.supergat_conv.softmax,
        pyg.conv.appnp.spmm,
    ]


ORIGINAL = functions()


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Calls are counted anew, too."""
    TALLY.clear()
    yield
    gnnbench.unpatch_pyg()
    assert functions() == ORIGINAL


@pytest.fixture
def always() -> Iterator[None]:
    """Every call is worth its Graph."""
    with mock.patch.object(patch, "_policy", Policy(min_gathered=0)):
        yield


@pytest.fixture
def unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No messages are run as programs, so that all that are not products are streamed."""
    monkeypatch.setattr(isplib.IsplibKernels, "accelerated", isplib.IsplibKernels.accelerated - {"program"})
