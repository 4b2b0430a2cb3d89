"""Prints the results of a benchmark."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping


def report(name: str, figures: Mapping[str, object]) -> None:
    """Print one result: JSON with --json, otherwise a line per figure."""
    if "--json" in sys.argv:
        print(json.dumps({"bench": name, **figures}), flush=True)
        return
    print(name, flush=True)
    for label, value in figures.items():
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        print(f"  {label:<58} {shown}")
