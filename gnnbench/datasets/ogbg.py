"""OGB's graph-property datasets through ogb's own loader, splits and Evaluator (Hu et al. 2020)."""

from __future__ import annotations

from typing import Annotated

from gnnbench.datasets import GraphsDataset, Roots, ogb, one_of
from gnnbench.datasets._kinds import GraphsConfig, Target
from gnnbench.errors import DatasetError

# Every bond counts twice.
KNOWN = {
    "ogbg-molhiv": ogb.Known(1_049_163, 2_259_376, 41_127),
    "ogbg-molpcba": ogb.Known(graphs=437_929),
    "ogbg-molbace": ogb.Known(graphs=1_513),
    "ogbg-molbbbp": ogb.Known(graphs=2_039),
    "ogbg-molclintox": ogb.Known(graphs=1_477),
    "ogbg-molmuv": ogb.Known(graphs=93_087),
    "ogbg-molsider": ogb.Known(graphs=1_427),
    "ogbg-moltox21": ogb.Known(graphs=7_831),
    "ogbg-moltoxcast": ogb.Known(graphs=8_576),
    "ogbg-molesol": ogb.Known(graphs=1_128),
    "ogbg-molfreesolv": ogb.Known(graphs=642),
    "ogbg-mollipo": ogb.Known(graphs=4_200),
    "ogbg-molchembl": ogb.Known(graphs=None),
    "ogbg-ppa": ogb.Known(graphs=158_100),
    "ogbg-code2": ogb.Known(graphs=452_741),
}
STAND_IN = "synthetic:mnist:0.02"


class Config(GraphsConfig):
    """Which dataset."""

    source: str = "ogbg"
    name: Annotated[str, one_of("dataset", KNOWN)]


def load(config: Config, where: Roots) -> GraphsDataset:
    """The graphs of `ogb.graphproppred.PygGraphPropPredDataset(config.name)`.

    Molecules have categories as features of atoms and bonds; ogbg-ppa has edge features alone.
    """
    import torch

    from gnnbench.datasets import _prepare_graphs

    meta = ogb.meta(config.name)
    if meta["task type"] == "subtoken prediction":
        raise DatasetError(
            f"{config.name} asks for sequences of words; gnnbench predicts classes, labels and numbers, "
            f"such as those of ogbg-molhiv"
        )
    dataset, splits = ogb.loaded(config.name, where, STAND_IN)
    kinds: dict[str, Target] = {"multiclass classification": "class", "regression": "value"}
    target = kinds.get(meta["task type"], "labels")
    return _prepare_graphs.from_pyg(
        config.name,
        dataset,
        target,
        splits={split: torch.as_tensor(ids) for split, ids in splits.items()},
        num_outputs=int(meta["num classes" if target == "class" else "num tasks"]),
        metric=meta["metric"],
        encoder="ogb" if ogb.is_molecular(config.name) else "",
    )
