"""Stored requests: kept for repetitions and followers, and no longer."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from nanobot.bus.events import Media, Said
from nanobot.errors import SendRefused, StorageError
from nanobot.testing import ScriptedModel
from nanobot_api.records import KEEP_SECONDS, Answer, Record, Records, record_id
from nanobot_api.requests import Attachment
from tests.channels.api.support import Api, repeat
from tests.channels.telegram.whole import nanobot

ID = record_id("laptop:me", "key-1")
RECORD = Record(key="laptop", chat="laptop:me", digest="d", created=1, said=(Said("user", "Hi"),))


def test_the_first_request_and_the_first_answer_stand(tmp_path: Path) -> None:
    records = Records(tmp_path)
    assert records.read(ID) is None
    assert records.begin(ID, RECORD) == RECORD
    assert records.begin(ID, Record(created=2)) == RECORD
    records.answer(ID, Answer("one"))
    records.answer(ID, Answer("two"))
    kept = Records(tmp_path).read(ID)
    assert kept is not None
    assert kept.answer == Answer("one")
    records.answer(record_id("laptop:me", "key-2"), Answer("of nothing"))
    assert records.read(record_id("laptop:me", "key-2")) is None


def test_repetitions_at_the_same_time_store_their_files(tmp_path: Path) -> None:
    records, file = Records(tmp_path), Attachment(b"png" * 10_000, "image", "image/png", "a.png")
    with ThreadPoolExecutor(8) as threads:
        stored = [threads.submit(records.keep_files, ID, (file,)) for _ in range(200)]
    (kept,) = {one.result() for one in stored}
    assert records.file(kept[0], 1_000_000) == file.data


@pytest.mark.parametrize("id", ["", "../keys", "0" * 31, "G" * 32, f"{'0' * 31}/"])
def test_a_name_that_is_no_id_leads_to_no_file(tmp_path: Path, id: str) -> None:
    (tmp_path / "keys.json").write_text('{"version": 1, "created": 1}')
    assert Records(tmp_path).read(id) is None


def test_files_wait_for_their_answer_and_no_longer(tmp_path: Path) -> None:
    records = Records(tmp_path)
    (kept,) = records.keep_files(ID, (Attachment(b"png", "image", "image/png", "a.png"),))
    assert (kept.kind, kept.name, kept.size) == ("image", "a.png", 3)
    assert records.file(kept, 10) == b"png"
    with pytest.raises(SendRefused, match="but the limit is"):
        records.file(kept, 2)
    for ref in ("../keys.json", f"{ID}-x", "x-0"):
        with pytest.raises(SendRefused):
            records.file(Media(ref), 10)
    records.drop_files(ID)
    with pytest.raises(SendRefused, match="cannot be read"):
        records.file(kept, 10)


def test_a_torn_line_counts_as_missing(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.begin(ID, RECORD)
    (path,) = (tmp_path / "records").iterdir()
    os.truncate(path, path.stat().st_size // 2)
    assert records.read(ID) is None
    assert records.begin(ID, RECORD) == RECORD
    records.answer(ID, Answer("one"))
    os.truncate(path, path.stat().st_size - 5)
    assert records.read(ID) == RECORD
    records.answer(ID, Answer("two"))
    assert Records(tmp_path).read(ID) == replace(RECORD, answer=Answer("two"))


def test_a_record_survives_a_power_loss_that_left_zeros_of_an_answer(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.begin(ID, RECORD)
    (path,) = (tmp_path / "records").iterdir()
    os.truncate(path, path.stat().st_size + 100)
    assert records.read(ID) == RECORD
    records.answer(ID, Answer("one"))
    assert records.read(ID) == replace(RECORD, answer=Answer("one"))


def test_of_an_answer_that_could_not_be_stored_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    records = Records(tmp_path)
    records.begin(ID, RECORD)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", refuse)
        with pytest.raises(StorageError):
            records.answer(ID, Answer("one"))
    assert records.read(ID) == RECORD


def test_the_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    answered = replace(RECORD, answer=Answer("one"))
    for record, after in ((RECORD, Answer("two")), (answered, Answer("one"))):
        path = tmp_path / "records" / f"{ID}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(record))
        assert Records(tmp_path).read(ID) == record
        Records(tmp_path).answer(ID, Answer("two"))
        assert Records(tmp_path).read(ID) == replace(RECORD, answer=after)


def test_what_is_older_than_a_month_goes(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.begin(ID, RECORD)
    (path,) = (tmp_path / "records").iterdir()
    os.utime(path, (1_000.0, 1_000.0))
    records.sweep(1_000.0 + KEEP_SECONDS - 1)
    assert records.read(ID) == RECORD
    records.sweep(1_000.0 + KEEP_SECONDS + 1)
    assert records.read(ID) is None


async def test_what_is_erased_is_in_no_record(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        await api.post("responses", {"model": "nanobot", "input": "The code is Birnbaum."})
        await nanobot(api.home, "memory", "forget", "Birnbaum", "--erase", "--yes")
        records = api.home / "state" / "channels" / "api" / "records"
        assert not [path for path in records.iterdir() if b"Birnbaum" in path.read_bytes()]
