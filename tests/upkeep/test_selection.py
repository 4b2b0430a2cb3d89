"""The content of a backup, and the part that is taken in one moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.upkeep.snapshot import backup_items, stays_inside

TOGETHER = [
    "config.yaml",
    "secrets.env",
    "sessions/fake_1.jsonl",
    "sessions/archive/fake_1/0001.jsonl",
    "state/dream.json",
    "state/jobs.json",
    "state/channels/telegram/x",
    "state/memory.git/HEAD",
    "state/versions/people/telegram_7.git/HEAD",
    "workspace/AGENTS.md",
    "workspace/memory/MEMORY.md",
    "workspace/people/telegram_7/USER.md",
]
"""In the order in which they are taken."""
APART = {
    "logs/audit.jsonl",
    "media/a.png",
    "somebody-elses/file",
    "state/cli_history",
    "state/journal.db.broken",
    "state/undo/x",
    "workspace/projects/a/b.txt",
    "workspace/report.pdf",
    "workspace/skills/tea/SKILL.md",
}
OUT = [
    "backups/x",
    "before-restore-20260302T090000Z/x",
    "logs/nanobot.log.1",
    "state/.0123456789abcdef.nanobot-tmp",
    "state/backup/x",
    "state/backup.lock",
    "state/gateway.lock",
    "state/index.db",
    "state/index.db-shm",
    "state/journal.db",
    "state/journal.db-wal",
    "state/memory.git.lock",
    "state/sends.log",
    "state/versions.lock",
    "state/versions/groups/telegram_-9.git.syncing",
    "state/versions/people/telegram_7.git.lock",
    "state/voice",
]


def test_each_file_has_its_place(tmp_path: Path) -> None:
    for path in (*TOGETHER, *APART, *OUT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")

    def find(*, together: bool, media: bool = True) -> list[str]:
        items = backup_items(tmp_path, [], together=together, media=media)
        return [one.path for one in items if one.kind == "file"]

    assert find(together=True) == TOGETHER
    assert set(find(together=False)) == APART
    assert set(find(together=False, media=False)) == APART - {"media/a.png"}


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("workspace/a", "b", True),
        ("workspace/a", "./b/c", True),
        ("workspace/x/a", "../b", True),
        ("workspace/x/a", "..", True),
        ("workspace/a", "..", False),
        ("workspace/a", "../state/journal.db", False),
        ("workspace/x/a", "../../state", False),
        ("workspace/a", "/etc/passwd", False),
        ("workspace/a", "b/../../state", False),
        ("workspace/a", "b/..", False),  # b may itself be a link
        ("state/a", "b", False),
        ("a", "workspace", False),
    ],
)
def test_a_link_has_to_stay_in_the_workspace(path: str, target: str, inside: bool) -> None:
    assert stays_inside(path, target) is inside
