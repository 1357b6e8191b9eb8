"""TUDataset: graphs to classify, in ten folds (Morris et al. 2020)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gnnbench.datasets import GraphsDataset, Roots, pyg
from gnnbench.datasets._kinds import GraphsConfig

FOLDS = 10
COUNTS = {  # nodes, edges, graphs
    "DD": (334_925, 1_686_092, 1_178),
    "ENZYMES": (19_580, 74_564, 600),
    "IMDB-BINARY": (19_773, 193_062, 1_000),
    "MUTAG": (3_371, 7_442, 188),
    "PROTEINS": (43_471, 162_088, 1_113),
    "REDDIT-BINARY": (859_254, 1_991_016, 2_000),
}
KNOWN = {name.lower(): pyg.Known("TUDataset", {"name": name}, *counts) for name, counts in COUNTS.items()}
PREFIX = "tudataset:"
# With hydrogen, too.
SCREENED = "MCF-7", "MOLT-4", "NCI-H23", "OVCAR-8", "P388", "PC-3", "SF-295", "SN12C", "SW-620", "UACC257", "Yeast"
ASSAYS = "AhR", "AR", "AR-LBD", "ARE", "aromatase", "ATAD5", "ER", "ER-LBD", "HSE", "MMP", "p53", "PPAR-gamma"
PLACES = "dblp", "facebook", "highschool", "infectious", "mit", "tumblr"
OTHERS = (  # as the collection spells them, which keeps no list that could be asked
    *("AIDS", "BZR", "BZR_MD", "COX2", "COX2_MD", "DHFR", "DHFR_MD", "ER_MD", "FRANKENSTEIN", "Mutagenicity"),
    *("NCI1", "NCI109", "PTC_FM", "PTC_FR", "PTC_MM", "PTC_MR", "KKI", "OHSU", "Peking_1", "PROTEINS_full"),
    *(screened + more for screened in SCREENED for more in ("", "H")),
    *(f"Tox21_{assay}_{use}" for assay in ASSAYS for use in ("training", "testing", "evaluation")),
    *(f"{place}_ct{task}" for place in PLACES for task in (1, 2)),
    *("COIL-DEL", "COIL-RAG", "Cuneiform", "Fingerprint", "FIRSTMM_DB", "Letter-high", "Letter-low", "Letter-med"),
    *("MSRC_9", "MSRC_21", "MSRC_21C", "COLLAB", "IMDB-MULTI", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K", "DBLP_v1"),
    *("deezer_ego_nets", "github_stargazers", "reddit_threads", "twitch_egos", "TWITTER-Real-Graph-Partial"),
    *("COLORS-3", "SYNTHETICnew", "Synthie", "TRIANGLES", "alchemy_full"),
    *("ZINC_full", "ZINC_train", "ZINC_val", "ZINC_test", "aspirin", "benzene", "ethanol", "malonaldehyde"),
    *("naphthalene", "salicylic_acid", "toluene", "uracil"),
)
SPECS = NAMES = {name.lower(): name for name in (*COUNTS, *OTHERS)}


class Config(GraphsConfig):
    """Which set of graphs, and which fold of it is for testing."""

    source: str = "tudataset"
    name: str = Field(pattern=r"^[\w-]+$", description="as its files are called, such as PROTEINS")
    fold: Annotated[int, Field(ge=0, lt=FOLDS)] = Field(
        0, description="of 10 with equal shares of each class: test; the next one is for validation"
    )
    node_attributes: bool = Field(False, description="real-valued attributes before the one-hot labels of nodes")


def parse(spec: str) -> dict[str, Any] | None:
    """`mutag`, `nci1` and the like in any case, or `TUDataset:NAME` for any other."""
    given = spec[len(PREFIX) :] if spec.lower().startswith(PREFIX) else spec
    name = NAMES.get(given.lower())
    return {"name": name or given} if name or given != spec else None


def load(config: Config, where: Roots) -> GraphsDataset:
    """The graphs of `torch_geometric.datasets.TUDataset(name=config.name)`, and folds drawn with `config.seed`.

    Ten folds are how the literature uses these sets, which have no split of their own (Xu et al. 2019).
    """
    from gnnbench.datasets import _prepare_graphs

    asked = pyg.Known("TUDataset", {"name": config.name, "use_node_attr": config.node_attributes})
    (dataset,) = pyg.opened(config.name, asked, where, "synthetic:mnist:0.02")
    graphs = _prepare_graphs.from_pyg(config.name, dataset)
    known = KNOWN.get(config.name.lower())
    if known and (unlike := pyg.unlike(graphs, known)):
        graphs.notes.append(f"{config.name} {unlike}; its files may be altered or truncated")
    graphs.name = f"{config.name} fold {config.fold}"
    y = graphs.y if graphs.target == "class" else graphs.y[:, 0] * 0
    fold = _prepare_graphs.fold_of(y, FOLDS, config.seed)
    test, val = fold == config.fold, fold == (config.fold + 1) % FOLDS
    masks = {"train": ~(test | val), "val": val, "test": test}
    graphs.splits = {split: mask.nonzero().flatten() for split, mask in masks.items()}
    return graphs
