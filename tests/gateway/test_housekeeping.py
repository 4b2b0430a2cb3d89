"""The housekeeping of each minute continues after any failure."""

from __future__ import annotations

from nanobot.errors import StorageError
from nanobot.tasks import Background, Repeated
from nanobot.testing import FakeClock


class Resting:
    """A part with housekeeping that fails at first."""

    def __init__(self, *troubles: Exception) -> None:
        self._troubles = list(troubles)
        self.looked = 0

    async def recover(self) -> None:
        """Do nothing, because there are no leftovers."""

    async def idle(self) -> None:
        self.looked += 1
        if self._troubles:
            raise self._troubles.pop(0)


async def test_housekeeping_outlives_any_error() -> None:
    clock, tasks = FakeClock(), Background()
    resting = Resting(StorageError("x", "full"), KeyError("something that no code expects"))
    tasks.start(Repeated(clock, 60.0, resting.idle, first=60.0).run_forever())
    for minute in range(1, 4):
        await clock.until_sleeping()
        await clock.advance(60)
        assert resting.looked == minute
    tasks.cancel()
    await tasks.drain(0)
