"""Compressed tables in text, as OGB's archives hold them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def write_csv(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in values)
    path.write_bytes(gzip.compress(text.encode()))
