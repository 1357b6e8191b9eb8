"""Times that were really measured: rounds of equal code, as noise to test what must not cry wolf."""

from __future__ import annotations

import functools
import json

from tests.support.commands import ROOT


@functools.cache
def rounds() -> list[list[float]]:
    """Rounds of what was measured under `results`, each over the median of its row: noise of real machines."""
    paths = sorted((ROOT / "results").glob("ops/*.json")) + sorted((ROOT / "results").glob("collate/*.json"))
    found = []
    for path in paths:
        for row in json.loads(path.read_text())["rows"]:
            samples = (row["time_s"] or {}).get("samples") or []
            if len(samples) == 5 and min(map(len, samples)) > 4:
                middle = sorted(second for of_round in samples for second in of_round)
                found += [[second / middle[len(middle) // 2] for second in of_round] for of_round in samples]
    return found


def series() -> dict[str, list[list[float]]]:
    """One real series by backend: rounds of equal code, on a machine that was busy with other work meanwhile."""
    held: dict[str, list[list[float]]] = json.loads((ROOT / "tests" / "comparison" / "series.json").read_text())[
        "rounds"
    ]
    return held
