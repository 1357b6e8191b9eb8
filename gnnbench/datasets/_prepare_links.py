"""Steps that all sources of links share: splits, drawing what is missing, and checks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import coalesce, is_undirected, remove_self_loops

from gnnbench.config import DatasetConfig
from gnnbench.datasets import _prepare, _raw
from gnnbench.datasets._kinds import EVALUATED, PARTS, LinksDataset, NodeDataset
from gnnbench.errors import DatasetError

NEGATIVES = 1 << 32  # what a seed is used for, beside the purposes of `_prepare`
DRAWS = 64  # of destinations that may be links


def split(dataset: NodeDataset, config: DatasetConfig) -> LinksDataset:
    """The edges of one graph in three parts by PyG's `RandomLinkSplit`, those of training for messages too.

    Loops and edges that repeat another one are no links, for a copy in another part would give them away.

    Raises:
        DatasetError: too few edges, or what `finish` refuses.
    """
    edge_index = coalesce(remove_self_loops(dataset.edge_index)[0], num_nodes=dataset.num_nodes)
    data = Data(edge_index=edge_index, num_nodes=dataset.num_nodes)
    options = {"is_undirected": is_undirected(edge_index, num_nodes=dataset.num_nodes), "split_labels": True}
    test_share = round(1 - config.train_share - config.val_share, 9)
    splitter = RandomLinkSplit(config.val_share, test_share, add_negative_train_samples=False, **options)
    try:
        with _raw.seeded(config.seed):
            parts = dict(zip(PARTS, splitter(data), strict=True))
    except ValueError:
        raise DatasetError(
            f"{dataset.name}: {edge_index.size(1)} edges leave none for training; raise dataset.train_share"
        ) from None
    repeated = dataset.num_edges - edge_index.size(1)
    note = f"{repeated} loops and repeated edges are left out, as a copy in another part would give a link away"
    return finish(
        LinksDataset(
            dataset.name,
            parts["train"].edge_index,
            dataset.x,
            positives={part: each.pos_edge_label_index for part, each in parts.items()},
            negatives={
                part: getattr(parts[part], "neg_edge_label_index", edge_index[:, :0]) for part in EVALUATED
            },
            made_up=[*dataset.made_up, "split"],
            notes=[*dataset.notes, *[note] * bool(repeated)],
        ),
        config,
    )


def finish(dataset: LinksDataset, config: DatasetConfig) -> LinksDataset:
    """`dataset` with a metric and negatives, once its graph and features are what they are to be.

    Raises:
        DatasetError: what makes it unfit, in one sentence with the remedy.
    """
    if not dataset.positives["train"].size(1):
        raise DatasetError(f"{dataset.name} has no training links; give some to the part 'train'")
    for part, pairs in dataset.positives.items():
        _prepare.check_range(dataset.name, f"a {part} link", pairs, dataset.num_nodes)
    if config.embedding:
        dataset.embedding, dataset.x = config.embedding, torch.arange(dataset.num_nodes)
    if config.negatives or not dataset.negatives:
        if "split" not in dataset.made_up:
            dataset.make_up("negatives")
        _draw_negatives(dataset, config)
    _check_negatives(dataset)
    dataset.metric = config.metric or dataset.metric or ("mrr" if dataset.ranked else "auc")
    _check_metric(dataset)
    _check_leak(dataset)
    return dataset


def _draw_negatives(dataset: LinksDataset, config: DatasetConfig) -> None:
    """Draw for each evaluated link `config.negatives` destinations that are no links, or one pair in a list."""
    generator = torch.Generator().manual_seed(NEGATIVES + config.seed)
    known = torch.cat([dataset.edge_index, *dataset.positives.values()], 1)
    keys = dataset.keys(known).unique()
    dataset.ranked = config.negatives > 0
    for part in EVALUATED:
        links = dataset.positives[part]
        sources = links[0].repeat_interleave(max(config.negatives, 1))
        if not dataset.ranked:
            sources = torch.randint(dataset.num_nodes, sources.shape, generator=generator)
        drawn = torch.randint(dataset.num_nodes, sources.shape, generator=generator)
        for _ in range(DRAWS):
            wrong = (drawn == sources) | torch.isin(dataset.keys(torch.stack([sources, drawn])), keys)
            if not bool(wrong.any()):
                break
            drawn[wrong] = torch.randint(dataset.num_nodes, (int(wrong.sum()),), generator=generator)
        else:
            raise DatasetError(
                f"{dataset.name}: no negatives can be drawn, as a source is linked to nearly all nodes; give a "
                "list of them"
            )
        dataset.negatives[part] = (
            drawn.view(links.size(1), -1) if dataset.ranked else torch.stack([sources, drawn])
        )


def _check_negatives(dataset: LinksDataset) -> None:
    for part in EVALUATED:
        links, negatives = dataset.positives[part].size(1), dataset.negatives[part]
        if links and not negatives.numel():
            raise DatasetError(
                f"{dataset.name} has no negatives for its {links} {part} links; list some, or leave out those of "
                "all parts to have them drawn"
            )
        _prepare.check_range(dataset.name, f"a {part} negative", negatives, dataset.num_nodes)


def _check_metric(dataset: LinksDataset) -> None:
    name, metric = dataset.name, dataset.metric
    if dataset.relations is not None and not dataset.ranked:
        raise DatasetError(
            f"{name} has typed links, but its negatives have no type; draw some for each link, of its type, with "
            "--set dataset.negatives=100"
        )
    if metric == "mrr" and not dataset.ranked:
        raise DatasetError(
            f"{name} has one list of negatives for all links, which metric mrr does not fit; choose hits@K, auc "
            "or ap, or draw some for each link with --set dataset.negatives=100"
        )
    if metric != "mrr" and dataset.ranked:
        raise DatasetError(
            f"{name} has negatives of its own for each link, which metric {metric} does not fit; choose mrr"
        )
    if metric.startswith("hits@"):
        rank = int(metric.partition("@")[2])
        sizes = (dataset.negatives[part].size(1) for part in EVALUATED if dataset.positives[part].size(1))
        fewest = min(sizes, default=rank)
        if rank > fewest:
            raise DatasetError(
                f"{name} has a list of {fewest} negatives, among which {metric} is always 1; choose a smaller K"
            )


def _check_leak(dataset: LinksDataset) -> None:
    """Refuse edges of messages, and training links, that are to be predicted.

    An edge in the other direction is one too, as no decoder tells both directions apart; but typed links are held
    against those of their type and direction alone. What a benchmark's own split repeats is told instead.

    Raises:
        DatasetError: with one such link.
    """
    seen = _keys(dataset, "train")
    if dataset.relations is None:
        seen = torch.cat([seen, _undirected(dataset, dataset.edge_index)])
    for part in EVALUATED:
        leaks = torch.isin(_keys(dataset, part), seen).nonzero().flatten()
        if not len(leaks):
            continue
        if dataset.own_split:
            share = len(leaks) / dataset.positives[part].size(1)
            dataset.notes.append(f"{share:.1%} of the {part} links are edges of messages too, in its own split")
            continue
        src, dst = dataset.positives[part][:, leaks[0]].tolist()
        remedy = "leave them out of the graph"
        if "split" in dataset.made_up:
            remedy = "make one link of both directions with --set dataset.to_undirected=true"
        raise DatasetError(
            f"{dataset.name}: {part} link {src} -> {dst} is also an edge of messages or a training link, or its "
            f"reverse is, as of {len(leaks)}; {remedy}, or evaluation would see what it asks for"
        )


def _keys(dataset: LinksDataset, part: str) -> Tensor:
    """Numbers [P] that links of a part share with those that give them away."""
    pairs = dataset.positives[part]
    if dataset.relations is None:
        return _undirected(dataset, pairs)
    return dataset.keys(pairs) * dataset.num_relations + dataset.relations[part]


def _undirected(dataset: LinksDataset, pairs: Tensor) -> Tensor:
    low, high = pairs.aminmax(dim=0)
    return low * dataset.num_nodes + high
