"""turn and queue: requests to a running gateway, output for people and for machines."""

from __future__ import annotations

import json
from typing import Any

QUEUE = {
    "inbox": [
        {"id": "in-12", "session": "cli:direct", "state": "failed", "attempts": 3,
         "received_at": "2026-11-21T12:00:00Z", "text": "do\nit", "reason": "it crashed"},
    ],
    "outbox": [
        {"id": "out-7", "channel": "telegram", "chat_id": "123", "state": "dead", "attempts": 9,
         "text": "hello", "reason": "blocked"},
    ],
}  # fmt: skip

TURN = {
    "id": "t-1", "session": "cli:direct", "state": "done", "started_at": "2026-11-21T12:00:00",
    "milliseconds": 1_234, "model": "tiny-1", "prompt_tokens": 5_000, "completion_tokens": 60,
    "cached_tokens": 4_000,
    "tools": [{"name": "read_file", "arguments": '{"path":"a.txt"}', "result": "AAA\nBBB",
               "milliseconds": 7}],
    "memory": [{"path": "memory/MEMORY.md", "characters": 2_048}],
    "system_prompt": "You are nanobot.\n\x1b[2JBe kind.",
    "messages": [{"role": "user", "content": "hi", "seq": 1}],
    "new_messages": [{"role": "assistant", "content": "hello", "seq": 2}],
}  # fmt: skip


def test_machines_get_the_data_as_it_is(gateway: Any, here: Any) -> None:
    gateway.answers |= {"queue.list": QUEUE, "turn.show": TURN}
    assert json.loads(here("status", "--json").stdout) == gateway.answers["status"]
    assert json.loads(here("queue", "list", "--json").stdout) == QUEUE
    assert json.loads(here("turn", "show", "t-1", "--json").stdout) == TURN


def test_the_queue_shows_what_failed_and_why(gateway: Any, here: Any) -> None:
    gateway.answers["queue.list"] = QUEUE
    assert here("queue", "list").stdout.splitlines() == [
        "inbox",
        "  id     state   tries  session",
        "  in-12  failed  3      cli:direct  do it  (it crashed)",
        "",
        "outbox",
        "  id     state  tries  to",
        "  out-7  dead   9      telegram:123  hello  (blocked)",
        "",
        "To retry or drop a failed message, run `nanobot queue retry ID` or "
        "`nanobot queue drop ID`.",
    ]


def test_an_empty_queue_says_so(gateway: Any, here: Any) -> None:
    gateway.answers["queue.list"] = {"inbox": [], "outbox": []}
    assert here("queue", "list").stdout == "No pending or failed messages.\n"


def test_the_queue_is_mended_by_id(gateway: Any, here: Any) -> None:
    gateway.answers |= {
        "queue.retry": {"text": "in-12 runs again."},
        "queue.drop": {"text": "Gone."},
    }
    assert here("queue", "retry", "in-12").stdout == "in-12 runs again.\n"
    assert here("queue", "drop", "out-7").stdout == "Gone.\n"
    assert gateway.asked == [("queue.retry", {"id": "in-12"}), ("queue.drop", {"id": "out-7"})]


def test_a_turn_shows_prompt_memory_tools_tokens_and_time(gateway: Any, here: Any) -> None:
    gateway.answers["turn.show"] = TURN
    shown = here("turn", "show", "t-1").stdout
    for expected in (
        "took     1,234 ms",
        "tokens   5,000 prompt (4,000 cached), 60 completion",
        "memory used\n  memory/MEMORY.md  2,048 characters",
        '  read_file {"path":"a.txt"} (7 ms)\n    AAA BBB',
        "system prompt\n  You are nanobot.\n  Be kind.",
        "messages\n#1 user\n  hi",
        "new messages\n#2 assistant\n  hello",
    ):
        assert expected in shown


def test_what_the_gateway_refuses_is_an_error(gateway: Any, here: Any) -> None:
    done = here("turn", "show", "t-9")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: nothing for turn.show\n  Look elsewhere.\n"
