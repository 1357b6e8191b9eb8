"""All tests of the drop-in leave PyG as it was."""

from __future__ import annotations

from tests.support.dropin import always, untouched

__all__ = ["always", "untouched"]
