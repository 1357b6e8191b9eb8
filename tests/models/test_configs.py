"""Every shipped configuration is complete, valid and commented, and the promised ones are there."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import yaml

from gnnbench import config
from gnnbench.models._typed import TypedConfig

FOLDER = Path(__file__).parents[2] / "configs"
FILES = sorted(FOLDER.glob("*.yaml"))
CITATION = ("cora", "citeseer", "pubmed")
PROMISED = {
    *product(("gcn", "sage_mean", "sage_sum", "sage_max", "gin", "gat", "gatv2", "transformer"), CITATION),
    *product(("gcn", "sage_mean", "sage_sum", "gin", "gat", "gatv2"), ("reddit",)),
    *product(("gcn", "sage_mean", "gat"), ("ogbn_arxiv", "ogbn_products", "ogbn_proteins")),
    *product(("gcn", "sage_mean", "gat"), ("ogbn_arxiv_sampled", "ogbn_products_sampled", "reddit_sampled")),
    ("gcn", "synthetic"),
    *product(("gin", "gcn"), ("ogbg_molhiv", "proteins", "mutag")),
    ("gine", "ogbg_molhiv"),
    *product(("transformer", "agnn", "gat"), ("pattern", "cluster")),
    ("conv", "computers"),
    *product(("gae",), CITATION),
    *product(("rgcn", "hetero_sage", "hgt"), ("dblp",)),
    *product(("gcn", "sage_mean"), ("ogbl_collab", "ogbl_ddi", "ogbl_ppa", "ogbl_citation2")),
}


def test_the_promised_ones_are_there() -> None:
    names = {path.stem for path in FILES}
    assert {f"{model}_{dataset}" for model, dataset in PROMISED} | {"demo"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_valid_and_complete(path: Path) -> None:
    found = config.load(path)
    raw = yaml.safe_load(path.read_text())
    assert list(raw) == [name for name in config.Run.model_fields if name in raw or name != "batch"]
    for section in ("model", "measure"):
        optional = {
            "allocator",
            "threads",
            "normalize",
            "readout",
            "head_layers",
            "decoder",
            "out_channels",
            "root_weight",
            "edge_features",
            "jk",
            "energy",
        }  # of one model alone, so that --set model.name=... stays valid, or on request
        assert set(raw[section]) >= set(type(getattr(found, section)).model_fields) - optional
    recipes = {"schedule", "warmup_epochs", "stalled", "clip_norm", "label_smoothing"}  # of tuned baselines
    machine = {"checkpoint_every", "device", "cuda_graph"}
    assert set(raw["train"]) >= set(config.TrainConfig.model_fields) - recipes - machine
    assert not any(value is None for section in raw.values() for value in section.values())
    assert path.read_text().count("#") >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_what_its_name_says(path: Path) -> None:
    if path.stem == "demo":
        return
    found = config.load(path)
    name = "gae" if found.model.decoder == "dot" and found.batch.links else found.model.name
    name += f"_{found.model.aggr}" if found.model.name == "sage" else ""
    args = getattr(found.dataset, "args", {})
    known = getattr(found.dataset, "dataset_class", found.dataset.source)
    dataset = args.get("name") or getattr(found.dataset, "name", known)
    dataset = dataset.replace("-", "_").lower()
    assert path.stem == f"{name}_{dataset}" + "_sampled" * (found.batch.kind == "neighbors")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_builds_its_model(path: Path) -> None:
    from gnnbench import models

    found = config.load(path)
    types = models.Types({"a": 4}, {"a": 10}, ["a"], [("a", "to", "a")], "a")
    typed = isinstance(found.model, TypedConfig)
    model = models.build(found.model, 10, 3, edge_channels=3, types=types if typed else None)
    assert len(model.get_submodule("convs")._modules) == found.model.layers


def test_the_papers_values() -> None:
    gcn = config.load(FOLDER / "gcn_cora.yaml")
    assert (gcn.model.hidden, gcn.model.dropout, gcn.train.lr, gcn.train.weight_decay) == (16, 0.5, 0.01, 5e-4)
    assert (gcn.train.decayed_layers, gcn.train.epochs) == ("first", 200)
    gat, pubmed = config.load(FOLDER / "gat_cora.yaml"), config.load(FOLDER / "gat_pubmed.yaml")
    assert (gat.model.heads, gat.model.hidden, gat.model.output_heads) == (8, 64, 1)
    assert (gat.model.dropout, gat.model.attention_dropout, gat.train.patience) == (0.6, 0.6, 100)
    assert (gat.train.lr, gat.train.weight_decay) == (0.005, 5e-4)
    assert (pubmed.model.output_heads, pubmed.train.lr, pubmed.train.weight_decay) == (8, 0.01, 0.001)
