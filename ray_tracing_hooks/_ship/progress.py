"""The progress file of one stage, which :mod:`~ray_tracing_hooks._spool.progress` describes."""

from __future__ import annotations

import os

from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.files import read_patiently, write_with_room
from ray_tracing_hooks._ship.problems import logger
from ray_tracing_hooks._ship.sink import DeliveryError
from ray_tracing_hooks._spool.progress import Progress, decode, encode, file_name


class ProgressFile:
    """The progress file with this label in a spool folder."""

    def __init__(self, spool_dir: str, label: str) -> None:
        self.name = file_name(label)
        self._path = os.path.join(spool_dir, self.name)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def load(self) -> Progress:
        """The progress that an earlier shipper has stored; a file that cannot be read is logged and counts as empty."""
        try:
            return decode(read_patiently(self._path))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning("the progress in %r cannot be read, starting anew: %s", self.name, describe(error))
        return Progress({}, {})

    def store(self, progress: Progress) -> None:
        """Replace the stored progress. Raises DeliveryError."""
        try:
            # Segments can only be removed once progress is stored, so storing it must work on a full disk.
            write_with_room(self._path, encode(progress))
        except OSError as error:
            raise DeliveryError(f"cannot write {self.name!r} in the spool: {error.strerror}") from error
