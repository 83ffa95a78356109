"""An open process: can be waited for and ended without ever mistaking another one for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal


class Handle:
    """Owns a pidfd. `gone` is done when the process and, if it was pid 1, all of its namespace have ended."""

    def __init__(self, file: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(file, self._ended)

    def _ended(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._file = -1
        if not self.gone.done():
            self.gone.set_result(None)

    @property
    def pid(self) -> int | None:
        """Its number, as long as it lives."""
        if self._file < 0:
            return None
        with open(f"/proc/self/fdinfo/{self._file}") as file:
            said = [line.split()[1] for line in file if line.startswith("Pid:")]
        return int(said[0]) if said and int(said[0]) > 0 else None

    def kill(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._file, signal.SIGKILL)

    async def wait(self) -> None:
        await asyncio.shield(self.gone)
