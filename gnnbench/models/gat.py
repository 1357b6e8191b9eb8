"""Graph attention network (Veličković et al., ICLR 2018)."""

from __future__ import annotations

from functools import partial

from gnnbench.config import AttentionConfig as Config
from gnnbench.models import _heads
from gnnbench.models._heads import takes_edges

__all__ = ["Config", "conv", "takes_edges"]

conv = partial(_heads.conv, "GATConv")
