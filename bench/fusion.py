"""Choose the weight of the ranking by meaning next to the ranking by words.

It is chosen on all but one of LoCoMo's conversations and checked on that one, for each of them.
Each conversation is embedded once, by the local model of the extra `embeddings`. For each search
the real index makes both rankings, and these are joined with every weight of the ranking by
meaning. The weight of the ranking by words is 1. Joined with weights of 1 they equal the index's
results, which is asserted. The chosen weight has the highest recall@10 over the questions of
categories 1 to 4. Of equal ones the nearest to 1 is chosen.

    python -m bench.fusion [--data FILE] [--shape none|short|echo] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple
from unittest.mock import patch

from bench.locomo import (
    DEFAULT,
    OVERALL,
    SHAPES,
    Answer,
    Conversation,
    Question,
    add_replies,
    conversations,
    open_filled_index,
    write_home,
)
from bench.reporting import report
from nanobot.memory.search import Query, query
from nanobot.memory.search.ranking import Ranking, fuse

SHIPPED = 1.0
WEIGHTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, SHIPPED, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5)
DEPTH = 10


class Rankings(NamedTuple):
    """Both rankings for a question, by the seqs of messages."""

    question: Question
    by_words: Ranking
    by_meaning: Ranking

    def recall(self, weight: float) -> float:
        """Return recall@10 with this weight of the ranking by meaning."""
        ranked = join_weighted(self.by_words, self.by_meaning, weight)
        return Answer(self.question, ranked).recall(DEPTH)


def join_weighted(by_words: Ranking, by_meaning: Ranking, weight: float) -> list[int]:
    """Join the rankings like `fuse`, but with a weight."""
    total = defaultdict[int, float](float)
    for ranking, share in ((by_words, 1.0), (by_meaning, weight)):
        for id, score in ranking:
            total[id] += share * score / ranking[0][1]
    return sorted(total, key=lambda id: (-total[id], -id))


async def rankings(home: Path, conversation: Conversation) -> list[Rankings]:
    """Return the real index's rankings for each question of categories 1 to 4."""
    found: list[Rankings] = []
    seen: list[tuple[Ranking, Ranking]] = []

    def recording(by_words: Ranking, by_meaning: Ranking) -> Ranking:
        seen.append((by_words, by_meaning))
        return fuse(by_words, by_meaning)

    with patch.object(query, "fuse", recording):
        async with open_filled_index(home, conversation, by_meaning=True) as index:
            for question in conversation.questions:
                if question.category not in OVERALL:
                    continue
                result = await index.search(Query(question.text, ("owner",), limit=sys.maxsize))
                joined, seqs = fuse(*seen[-1]), [hit.passage.seq for hit in result.hits]
                known = {id: seq for (id, _), seq in zip(joined, seqs, strict=True)}
                words, meaning = (
                    [(known[id], score) for id, score in ranking] for ranking in seen[-1]
                )
                assert join_weighted(words, meaning, SHIPPED) == seqs
                found.append(Rankings(question, words, meaning))
    assert len(seen) == len(found)
    return found


def recall(questions: Sequence[Rankings], weight: float) -> float:
    """Return the mean over questions."""
    return fmean(one.recall(weight) for one in questions)


def leave_one_out(each: Sequence[Sequence[Rankings]]) -> dict[str, object]:
    """Return for each conversation the weight chosen on the others and its recall, and the recall
    with the shipped weight. Then the same over the questions of all."""
    figures: dict[str, object] = {}
    chosen_total = shipped_total = 0.0
    for number, held_out in enumerate(each, 1):
        others = [one for some in each if some is not held_out for one in some]
        weight = max(WEIGHTS, key=lambda weight: (recall(others, weight), -abs(weight - SHIPPED)))
        chosen, shipped = recall(held_out, weight), recall(held_out, SHIPPED)
        figures[f"{number}: weight chosen on the others"] = weight
        figures[f"{number}: recall@10 with it"] = chosen
        figures[f"{number}: recall@10 with the shipped weight"] = shipped
        chosen_total += chosen * len(held_out)
        shipped_total += shipped * len(held_out)
    every = [one for some in each for one in some]
    figures["held out, all questions: recall@10"] = chosen_total / len(every)
    figures["the same with the shipped weight"] = shipped_total / len(every)
    for weight in WEIGHTS:
        figures[f"all questions, weight {weight}: recall@10"] = recall(every, weight)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="The weight of the ranking by meaning.")
    parser.add_argument("--data", type=Path, default=DEFAULT, help="a file in LoCoMo's format")
    parser.add_argument("--shape", choices=SHAPES, default="short")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    each = []
    for sample in conversations(options.data):
        with tempfile.TemporaryDirectory() as folder:
            conversation = add_replies(sample, options.shape)
            write_home(Path(folder), conversation)
            each.append(asyncio.run(rankings(Path(folder), conversation)))
    report("fusion", leave_one_out(each))


if __name__ == "__main__":
    main()
