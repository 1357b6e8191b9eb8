"""Metrics of links: OGB's Evaluators, and scikit-learn's areas under curves."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from gnnbench.datasets import _raw

if TYPE_CHECKING:
    from torch import Tensor

Score = Callable[["Tensor", "Tensor"], float]


def score_of(metric: str) -> Score:
    """The function of a metric: scores of links [P] and of negatives, [Q], or [P, K] for mrr -> float.

    NaN where there are no links.
    """
    score = _by_sklearn(metric) if metric in ("auc", "ap") else _by_ogb(metric)
    return lambda positives, negatives: score(positives, negatives) if len(positives) else float("nan")


def _by_sklearn(metric: str) -> Score:
    def score(positives: Tensor, negatives: Tensor) -> float:
        import torch
        from sklearn import metrics

        function = metrics.roc_auc_score if metric == "auc" else metrics.average_precision_score
        scores = torch.cat([positives, negatives])
        truth = torch.zeros(len(scores)).index_fill_(0, torch.arange(len(positives)), 1.0)
        return float(function(truth, scores))

    return score


def _by_ogb(metric: str) -> Score:
    with _raw.quiet():
        evaluator = importlib.import_module("ogb.linkproppred").Evaluator(
            "ogbl-citation2" if metric == "mrr" else "ogbl-ddi"
        )
    if metric != "mrr":
        evaluator.K = int(metric.partition("@")[2])

    def score(positives: Tensor, negatives: Tensor) -> float:
        result = evaluator.eval({"y_pred_pos": positives, "y_pred_neg": negatives})
        return float(result["mrr_list"].mean() if metric == "mrr" else result[metric])

    return score
