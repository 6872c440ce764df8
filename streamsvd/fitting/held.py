"""A folder that one run at a time works in."""

import os
from pathlib import Path
from typing import Self

from streamsvd.errors import OptionError, ResourceError
from streamsvd.fitting.records import refuse_other_kinds
from streamsvd.storage.locks import Lock


class HeldFolder:
    """A context manager that holds the locks of a folder, which is made when it does not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._refuse_strangers()
            refuse_other_kinds(folder, {"lock": "file"})
            self._locks = self._take_locks()
        except BlockingIOError as error:
            raise ResourceError(
                f"workspace {folder} is in use by another run; wait for it or give another folder"
            ) from error
        except OSError as error:
            raise ResourceError(
                f"workspace {folder} cannot be written: {error.strerror}; give another folder"
            ) from error

    def _take_locks(self) -> list[Lock]:
        """Of a file, as network file systems lock no folders, and of the folder.

        A cleaner of temporary files may remove a file that is held, and the next run would lock a
        new one. The folder it cannot remove, for what is in it; that of systemd leaves folders
        alone that are locked.
        """
        locks = [Lock(self.folder / "lock", os.O_RDWR | os.O_CREAT)]
        try:
            locks.append(Lock(self.folder))
        except BlockingIOError:
            locks[0].release()
            raise
        except OSError:
            pass
        return locks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for lock in self._locks:
            lock.release()

    @property
    def is_held(self) -> bool:
        """Whether this process may write here: not a forked child, not after another took over."""
        return all(lock.is_held() for lock in self._locks)

    def _check_held(self) -> None:
        if not self.is_held:
            raise ResourceError(
                f"workspace {self.folder} is no longer held by this run: its lock was removed, or "
                "this is a child of its process; nothing more is written there"
            )

    @property
    def _run_file(self) -> Path:
        return self.folder / "run.json"

    def _refuse_strangers(self) -> None:
        """Where no run is, nothing else is either."""
        if os.path.lexists(self._run_file):
            return
        ours = ("lock", "run.json")  # of another run that begins just now
        strangers = sorted(
            p.name for p in self.folder.iterdir() if p.name[0] != "." and p.name not in ours
        )
        if strangers:
            raise OptionError(
                f"workspace {self.folder} is not empty and holds no run: {strangers[:5]}; "
                "give a new folder"
            )
