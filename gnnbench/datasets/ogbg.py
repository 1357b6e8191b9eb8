"""OGB's graph-property datasets through ogb's own loader, splits and Evaluator (Hu et al. 2020)."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from gnnbench.datasets import GraphsDataset, Offer, Roots, _names, _ogb, _union
from gnnbench.datasets._graphs import PARTS, GraphsConfig, Target
from gnnbench.errors import DatasetError

# Graphs, nodes and edges, where published; every bond counts twice.
KNOWN: dict[str, tuple[int | None, int | None, int | None]] = {
    "ogbg-molhiv": (41_127, 1_049_163, 2_259_376),
    "ogbg-molpcba": (437_929, None, None),
    "ogbg-molbace": (1_513, None, None),
    "ogbg-molbbbp": (2_039, None, None),
    "ogbg-molclintox": (1_477, None, None),
    "ogbg-molmuv": (93_087, None, None),
    "ogbg-molsider": (1_427, None, None),
    "ogbg-moltox21": (7_831, None, None),
    "ogbg-moltoxcast": (8_576, None, None),
    "ogbg-molesol": (1_128, None, None),
    "ogbg-molfreesolv": (642, None, None),
    "ogbg-mollipo": (4_200, None, None),
    "ogbg-molchembl": (None, None, None),
    "ogbg-ppa": (158_100, None, None),
    "ogbg-code2": (452_741, None, None),
}
SPECS = list(KNOWN)
NEEDED = ("raw/edge.csv.gz", "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz", "raw/graph-label.csv.gz")
MOLECULES = ("raw/node-feat.csv.gz", "raw/edge-feat.csv.gz")
OWN_PARTS = ("train", "valid", "test")
STAND_IN = "synthetic:mnist:0.02"


class Config(GraphsConfig):
    """Which dataset."""

    source: str = "ogbg"
    name: Annotated[str, _names.one_of("dataset", KNOWN)]


parse = partial(_names.lowered, KNOWN)


def listing(where: Roots) -> list[Offer]:
    return [
        Offer(name, nodes, edges, _ogb.on_disk(name, where, _needed(name)), graphs)
        for name, (graphs, nodes, edges) in KNOWN.items()
    ]


def load(config: Config, where: Roots) -> GraphsDataset:
    """The graphs of `ogb.graphproppred.PygGraphPropPredDataset(config.name)`.

    Molecules have categories as features of atoms and bonds; ogbg-ppa has edge features alone.

    Raises:
        DatasetError: files missing or corrupt, or targets that are neither classes, labels nor numbers.
    """
    import torch

    meta = _ogb.meta("graphproppred", config.name)
    if meta["task type"] == "subtoken prediction":
        raise DatasetError(
            f"{config.name} asks for sequences of words; gnnbench predicts classes, labels and numbers, "
            f"such as those of ogbg-molhiv"
        )
    folder = _ogb.find("graphproppred", config.name, where, _needed(config.name), STAND_IN)
    dataset, split = _ogb.read("graphproppred", config.name, folder, where)
    union = _union.of(config.name, dataset)
    kinds: dict[str, Target] = {"multiclass classification": "class", "regression": "value"}
    target = kinds.get(meta["task type"], "labels")
    y = union.targets
    metric, score = _ogb.metric_of("graphproppred", config.name)
    return GraphsDataset(
        config.name,
        **union.graphs(),
        y=y.flatten().long() if target == "class" else y.float(),
        parts={part: torch.as_tensor(split[key]) for part, key in zip(PARTS, OWN_PARTS, strict=True)},
        target=target,
        num_outputs=int(meta["num classes"]) if target == "class" else int(meta["num tasks"]),
        metric=metric,
        score=score,
        encoder="ogb" if _is_molecular(config.name) else "",
    )


def _is_molecular(name: str) -> bool:
    return name.startswith("ogbg-mol")


def _needed(name: str) -> tuple[str, ...]:
    return (*NEEDED, *MOLECULES) if _is_molecular(name) else NEEDED
