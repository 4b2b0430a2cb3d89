"""The bench of Claude's prompt cache, with fewer turns."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from bench.anthropic_cache import converse


async def test_each_request_reads_all_of_the_one_before_from_the_cache(tmp_path: Path) -> None:
    counted, refused = await converse(tmp_path, minimum=1_024, turns=6)
    assert refused == 0
    assert len(counted) == 8  # two turns with a tool call
    assert all(later.read == earlier.total for earlier, later in pairwise(counted))
    assert sum(one.uncached for one in counted) == 0
