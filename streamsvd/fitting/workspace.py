"""A run on disk: its identity, its ingested statistics, its log. What a killed run leaves behind.

    workspace/
      lock          held while a run works here; a lock left by a killed run holds nothing
      run.json      what was asked of which source; compared before a run goes on
      ingested.npz  statistics of the ingested source
      state.json    at which transform the working store stands; there after a clean stop only
      log/*.npz     the transforms, a file every few seconds
      x.zarr        the working store

Files are written aside, flushed and renamed: each is there whole or not at all.
"""

import fcntl
import hashlib
import io
import json
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.algorithm.block_log import Log
from streamsvd.arrays import Array
from streamsvd.errors import OptionError, ResourceError

RUN_VERSION = 1


INGESTED = ("mean", "scale", "energies", "initial")


class Workspace:
    """The folder of one run; a context manager that holds its lock.

    Parameters
    ----------
    folder : Path
        Made when it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "x.zarr"
        self._saved = 0
        self._is_ours = False
        self._is_new = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._made_lock = not (folder / "lock").exists()
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ResourceError(
                f"workspace {folder} cannot be written: {error.strerror}; give another folder"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise ResourceError(
                f"workspace {folder} is in use by another run; wait for it or give another folder"
            ) from error
        except OSError as error:
            os.close(self._lock)
            raise ResourceError(
                f"workspace {folder} cannot be locked: {error.strerror}; give a folder on a local "
                "disk"
            ) from error

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._lock)

    # ---------------------------------------------------------------------------- identity

    def begin(self, identity: dict[str, Any], resume: bool) -> bool:
        """Start a run here, or go on with the one that is here.

        Returns whether there is one to go on with. Refuses to mix runs: the error says which
        setting differs.
        """
        here = self._read_json("run.json")
        if here is None and (self.folder / "run.json").exists():
            raise ResourceError(
                f"{self.folder / 'run.json'} is damaged: what ran in this workspace is not known; "
                "give a new folder"
            )
        if here is None:
            strangers = sorted(
                p.name for p in self.folder.iterdir() if p.name[0] != "." and p.name != "lock"
            )
            if strangers:
                if self._made_lock:
                    (self.folder / "lock").unlink()
                raise OptionError(
                    f"workspace {self.folder} is not empty and holds no run: {strangers[:5]}; "
                    "give a new folder"
                )
            self._write_json("run.json", identity | {"version": RUN_VERSION})
            self._is_ours = True
            return False
        if not resume:
            raise OptionError(
                f"workspace {self.folder} holds a run; pass resume=True to go on with it, or give "
                "a new folder"
            )
        asked = json.loads(json.dumps(identity | {"version": RUN_VERSION}))
        for key in sorted(asked.keys() | here.keys()):
            if asked.get(key) != here.get(key):
                raise OptionError(
                    f"workspace {self.folder} holds a run with another {key}: {here.get(key)!r} "
                    f"there, {asked.get(key)!r} now; give a new folder to start afresh"
                )
        self._is_ours = True
        return True

    def abandon(self) -> None:
        """Leave nothing behind when not one transform was saved; nothing of another run's."""
        if self._is_ours and not (self.folder / "log").exists():
            self.discard_store()
            for name in ("run.json", "lock"):
                (self.folder / name).unlink(missing_ok=True)
            if self._is_new:
                self.folder.rmdir()

    # ---------------------------------------------------------------------- ingested source

    def save_ingested(self, arrays: dict[str, Array]) -> None:
        """Note that the working store holds the whole source, with its statistics."""
        self._write_arrays(self.folder / "ingested.npz", arrays)

    def load_ingested(self) -> dict[str, Array] | None:
        """What `save_ingested` noted, None when the ingest did not finish."""
        return _read_arrays(self.folder / "ingested.npz", INGESTED)

    # ---------------------------------------------------------------------------------- log

    def append(self, log: Log) -> None:
        """Save the transforms that were not saved yet."""
        first, last = self._saved, len(log)
        if last == first:
            return
        (self.folder / "log").mkdir(exist_ok=True)
        self._write_arrays(self._segment(first), log.arrays(first, last))
        self._saved = last

    def load_log(self, log: Log) -> None:
        """Fill `log`, which is empty and takes what room it needs, with the saved transforms."""
        parts: list[dict[str, Array]] = []
        saved = 0
        # What comes after a damaged file is made again, with the same bits.
        while (part := _read_arrays(self._segment(saved), log.NAMES)) and len(part["values"]):
            parts.append(part)
            saved += len(part["values"])
        if parts:
            log.extend(*(np.concatenate([part[name] for part in parts]) for name in log.NAMES))
        self._saved = saved
        for later in (self.folder / "log").glob("*.npz"):
            if later.stem.isdigit() and int(later.stem) >= saved:
                later.unlink()

    def _segment(self, first: int) -> Path:
        return self.folder / "log" / f"{first:015d}.npz"

    # -------------------------------------------------------------------------- store state

    def set_clean(self, step: int) -> None:
        """Note that the working store, flushed, stands at transform `step`."""
        self._write_json("state.json", {"step": step, "store": self._store_digest()})

    def set_dirty(self) -> None:
        """Note that the working store is being written to."""
        (self.folder / "state.json").unlink(missing_ok=True)
        self._flush_folder(self.folder)

    def clean_step(self) -> int | None:
        """At which transform the working store stands.

        None when it was left in the middle, or was written to since.
        """
        state = self._read_json("state.json") or {}
        step = state.get("step")
        is_known = isinstance(step, int) and state.get("store") == self._store_digest()
        return step if is_known else None

    def _store_digest(self) -> str:
        """Changes when a file of the working store does: of names, sizes and times."""
        digest = hashlib.sha256()
        for path in sorted(self.store.rglob("*")):
            stat = path.stat()
            if path.is_file():
                name = path.relative_to(self.store).as_posix()
                digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def discard_store(self) -> None:
        """Forget the working store and what was ingested; the log stays."""
        self.set_dirty()
        (self.folder / "ingested.npz").unlink(missing_ok=True)
        if self.store.exists():
            shutil.rmtree(self.store)

    # ---------------------------------------------------------------------------- the files

    def _read_json(self, name: str) -> dict[str, Any] | None:
        """The content of a file, None when it is not there or damaged."""
        try:
            content = json.loads((self.folder / name).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        self._write(self.folder / name, json.dumps(content, indent=1).encode())

    def _write_arrays(self, path: Path, arrays: dict[str, Array]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        self._write(path, buffer.getvalue())

    def _write(self, path: Path, content: bytes) -> None:
        aside = path.with_name(f".{path.name}.new")
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise ResourceError(
                f"cannot write {path}: {error.strerror}; make room, then resume"
            ) from error
        self._flush_folder(path.parent)

    @staticmethod
    def _flush_folder(folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, Array] | None:
    """The arrays of a file, None when it is not there or damaged."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError):
        return None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError):
        return None
