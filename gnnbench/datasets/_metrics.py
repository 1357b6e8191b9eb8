"""Metrics by their names: a dataset says which one it is scored by, and its function is found here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gnnbench.datasets import _disk
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor

Score = Callable[["Tensor", "Tensor"], float]
# Metrics of OGB for any number of answers, each with a dataset whose Evaluator computes it.
OGB = {"rocauc": "ogbg-molhiv", "ap": "ogbg-molpcba", "negative RMSE": "ogbg-molesol"}


def score_of(metric: str, outputs: int) -> Score:
    """The function of a metric: (outputs [M, T], targets [M] or [M, T]) -> float, higher is better.

    There is a row or more; NaN where it is not defined. Targets have so many `outputs`: classes, labels or values.

    Raises:
        DatasetError: there is none of this name.
    """
    if metric not in NAMES:
        raise DatasetError(f"the metric {metric!r} is not one of {', '.join(NAMES)}")
    if metric in PLAIN:
        return PLAIN[metric]
    evaluator = _evaluator("graphproppred", OGB[metric])
    evaluator.num_tasks = outputs
    return partial(_by_ogb, metric, evaluator)


def link_score_of(metric: str) -> Score:
    """The function of a metric: scores of links [P], one or more, and of negatives, [Q], or [P, K] for mrr."""
    if metric in ("auc", "ap"):
        return partial(_under_curve, metric)
    evaluator = _evaluator("linkproppred", "ogbl-citation2" if metric == "mrr" else "ogbl-ddi")
    if metric != "mrr":
        evaluator.K = int(metric.partition("@")[2])
    return partial(_among_negatives, metric, evaluator)


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of [M] nodes whose largest of [M, C] logits is their class."""
    return float((logits.argmax(-1) == y).double().mean())


def micro_f1(logits: Tensor, y: Tensor) -> float:
    """F1 over all entries of [M, T] labels, a positive logit being a yes; NaN without any yes."""
    yes, truth = logits > 0, y > 0
    total = int(yes.sum()) + int(truth.sum())
    return 2 * int((yes & truth).sum()) / total if total else float("nan")


def macro_f1(outputs: Tensor, y: Tensor) -> float:
    """Mean F1 of the classes that occur among [M] targets or predictions from [M, C] outputs."""
    import torch

    guess, classes = outputs.argmax(-1), outputs.size(-1)
    right = torch.bincount(y[guess == y], minlength=classes).double()
    total = torch.bincount(guess, minlength=classes) + torch.bincount(y, minlength=classes)
    return float((2 * right / total)[total > 0].mean())


def negative_mae(outputs: Tensor, y: Tensor) -> float:
    """Mean absolute error of [M, T] values, less than zero so that higher is better."""
    return -float((outputs - y).abs().double().mean())


PLAIN: dict[str, Score] = {
    "accuracy": accuracy,
    "micro-F1": micro_f1,
    "macro F1": macro_f1,
    "negative MAE": negative_mae,
}
NAMES = (*PLAIN, *OGB)


def _by_ogb(metric: str, evaluator: Any, outputs: Tensor, y: Tensor) -> float:
    if metric == "negative RMSE":
        return -float(evaluator.eval({"y_true": y, "y_pred": outputs})["rmse"])
    if not bool(((y == 1).any(0) & (y == 0).any(0)).any()):
        return float("nan")  # no label has both values, so there is no curve
    return float(evaluator.eval({"y_true": y, "y_pred": outputs})[metric])


def _under_curve(metric: str, positives: Tensor, negatives: Tensor) -> float:
    import torch
    from sklearn import metrics

    function = metrics.roc_auc_score if metric == "auc" else metrics.average_precision_score
    truth = torch.cat([torch.ones(len(positives)), torch.zeros(len(negatives))])
    return float(function(truth, torch.cat([positives, negatives])))


def _among_negatives(metric: str, evaluator: Any, positives: Tensor, negatives: Tensor) -> float:
    result = evaluator.eval({"y_pred_pos": positives, "y_pred_neg": negatives})
    return float(result["mrr_list"].mean() if metric == "mrr" else result[metric])


def _evaluator(package: str, name: str) -> Any:
    with _disk.quiet():
        return importlib.import_module(f"ogb.{package}").Evaluator(name)
