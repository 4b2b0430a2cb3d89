"""What is in a backup, and what is taken in one moment."""

from __future__ import annotations

import pytest

from nanobot.upkeep.contents import backup_part, stays_inside


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("config.yaml", "together"),
        ("secrets.env", "together"),
        ("state/jobs.json", "together"),
        ("state/dream.json", "together"),
        ("state/journal.db.broken", "apart"),
        ("state/cli_history", "apart"),
        ("workspace/AGENTS.md", "together"),
        ("logs/audit.jsonl", "apart"),
        ("workspace/report.pdf", "apart"),
        ("state/journal.db", "out"),
        ("state/journal.db-wal", "out"),
        ("state/index.db", "out"),
        ("state/index.db-shm", "out"),
        ("state/gateway.lock", "out"),
        ("state/sends.log", "out"),
        ("state/gateway.sock", "out"),
        ("state/memory.git.lock", "out"),
        ("state/versions.lock", "out"),
        ("state/voice", "out"),
        ("state/versions/people/telegram_7.git.lock", "out"),
        ("state/versions/groups/telegram_-9.git.syncing", "out"),
        ("state/backup.lock", "out"),
        ("logs/nanobot.log.1", "out"),
        ("state/.0123456789abcdef.nanobot-tmp", "out"),
    ],
)
def test_each_file_has_its_place(path: str, part: str) -> None:
    assert backup_part(path, folder=False) == part


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("", "mixed"),
        ("state", "mixed"),
        ("workspace", "mixed"),
        ("sessions", "together"),
        ("state/memory.git", "together"),
        ("state/versions", "mixed"),
        ("state/versions/people", "mixed"),
        ("state/versions/people/telegram_7.git", "together"),
        ("state/versions/people/telegram_7.git.damaged-20260302T090000", "apart"),
        ("state/channels", "together"),
        ("workspace/memory", "together"),
        ("workspace/people", "together"),
        ("workspace/projects", "apart"),
        ("workspace/skills", "apart"),
        ("state/undo", "apart"),
        ("media", "apart"),
        ("somebody-elses", "apart"),
        ("backups", "out"),
        ("state/backup", "out"),
        ("before-restore-20260302T090000Z", "out"),
    ],
)
def test_each_folder_has_its_place(path: str, part: str) -> None:
    assert backup_part(path, folder=True) == part


def test_media_can_be_left_out() -> None:
    assert backup_part("media", folder=True, media=False) == "out"


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
