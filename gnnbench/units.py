"""Times, sizes and ratios as people read them: three significant digits and a unit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
SIZES = {"TiB": 1024**4, "GiB": 1024**3, "MiB": 1024**2, "KiB": 1024, "B": 1}
QUANTITY = re.compile(r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?) ?(\w*)")


def seconds(*values: float) -> str:
    """A time, or a range in the unit of its upper end: `"12.3 ms"`, `"12.1–12.6 ms"`."""
    return _scaled(values, TIMES)


def size(*values: float) -> str:
    """Bytes, or a range of them: `"1.50 GiB"`."""
    return _scaled(values, SIZES)


def size_bytes(text: str, total_bytes: int) -> int:
    """`"16GiB"`, `"500MB"` or `"90%"` of `total_bytes`, in bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|[KMGT]i?B?|B)?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) <= 0:
        raise ValueError(f"{text!r} is not a size; write one such as 16GiB, 500MB or 90%")
    unit = (match[2] or "B").upper()
    if unit == "%":
        if float(match[1]) > 100:
            raise ValueError(f"{text!r} is more memory than there is; write a share of at most 100%")
        return int(total_bytes * float(match[1]) / 100)
    base = 1024 if "I" in unit else 1000
    return int(float(match[1]) * base ** "BKMGT".index(unit[0]))


def ratio(*values: float) -> str:
    """A factor, or a range of them: `"0.98–1.02x"`, `"41.2x"`."""
    return "–".join(f"{value:.2f}" if 0.1 <= value < 9.995 else digits(value) for value in values) + "x"


def count(value: int) -> str:
    """A number with its thousands set apart: `"114,615,892"`."""
    return f"{value:,}"


def counted(number: int, noun: str) -> str:
    """`"1 epoch"`, `"200 epochs"`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def power(value: float) -> str:
    """A small number by its size: `"3e-7"`."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e+") if value else "0"


def digits(value: float) -> str:
    """Three significant digits, and all of them before the decimal point."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:.{decimals}f}"


def scale(largest: float, table: Mapping[str, float] = TIMES) -> tuple[str, float]:
    """The unit in which a number is written, such as a time by `seconds`, and how many base units it has."""
    fitting = ((unit, size) for unit, size in table.items() if float(f"{largest / size:.3g}") >= 1)
    return next(fitting, [*table.items()][-1])


def interval(write: Callable[..., str], low: float, high: float, form: str = "{}") -> str:
    """Write both ends in `form`, by `seconds` or `ratio`; nothing where they are one, as of a single sample."""
    return form.format(write(low, high)) if low < high else ""


def value(text: str) -> float | None:
    """The first number of a text of this module in base units: 0.0123 of `"12.3 ms"`; None where it has none."""
    match = QUANTITY.match(text)
    if match is None:
        return None
    return float(match[1].replace(",", "")) * {**TIMES, **SIZES}.get(match[2], 1.0)


def _scaled(values: tuple[float, ...], table: Mapping[str, float]) -> str:
    unit, size = scale(max(map(abs, values)) or 1.0, table)
    return "–".join(digits(value / size) for value in values) + f" {unit}"
