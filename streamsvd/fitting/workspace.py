"""A run on disk: its identity, its ingested statistics, its log. What a killed run leaves behind.

    workspace/
      lock          held while a run works here, and so is the folder; never removed
      run.json      what was asked of which source; compared before a run goes on; and the machine
      ingested.npz  statistics of the ingested source
      state.json    at which transform the working store stands; there after a clean stop only
      log/*.npz     the transforms, a file every few seconds
      x.zarr        the working store

Files are written aside, flushed and renamed: each is there whole or not at all. Each ends in a
checksum that begins with the run's identity, that of a file of the log with the files before it: a
file of another run, or out of its place, is as good as damaged. What is damaged is made again, but
for `run.json`: without it nobody knows what ran.
"""

import hashlib
import json
import logging
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.log_check import log_fault
from streamsvd.arrays import Array
from streamsvd.errors import OptionError, ResourceError
from streamsvd.fitting.held import HeldFolder
from streamsvd.fitting.machine import this_machine, warn_of_another
from streamsvd.fitting.records import (
    flush_folder,
    read_arrays,
    read_json,
    refuse_other_kinds,
    write_arrays,
    write_whole,
    writing,
)
from streamsvd.progress import Progress, progress_bar
from streamsvd.storage.checksums import checksum_of_json, checksums_of_stores

logger = logging.getLogger("streamsvd")

RUN_VERSION = 2


NOT_COMPARED = ("machine", "places")
"""What `run.json` has for the record: a run goes on with another, and says so."""


INGESTED = ("mean", "scale", "energies", "initial")


QUICK = 2**27
"""Bytes whose checksums take no time to speak of, 0.05 s."""


KINDS = {
    "lock": "file",
    "run.json": "file",
    "ingested.npz": "file",
    "state.json": "file",
    "log": "folder",
    "x.zarr": "folder",
}


class Workspace(HeldFolder):
    """The folder of one run; a context manager that holds its lock.

    Parameters
    ----------
    folder : Path
        Made when it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = folder / "x.zarr"
        self._saved = 0
        self._identity: dict[str, Any] = {}
        self._checksum = self._log_checksum = 0
        self._is_ours = False

    # ---------------------------------------------------------------------------- identity

    def begin(self, identity: dict[str, Any], resume: bool, places: str | None = None) -> bool:
        """Start a run here, or go on with the one that is here.

        Returns whether there is one to go on with. Refuses to mix runs: the error says which
        setting differs. Warns where the source is the same in other `places`: it was restored, or
        replaced by one that was made to look the same.
        """
        self._refuse_strangers()
        refuse_other_kinds(self.folder, KINDS)
        asked = json.loads(json.dumps(identity | {"version": RUN_VERSION}))
        is_there = self._run_file.exists()
        if is_there:
            self._check_same(asked, resume, places)
            self._check_writable()
        else:
            about = {"machine": this_machine(), "places": places}
            self._write_json(self._run_file, asked | about)
        self._is_ours, self._identity = True, asked
        self._checksum = self._log_checksum = checksum_of_json(asked)
        return is_there

    def _check_same(self, asked: dict[str, Any], resume: bool, places: str | None) -> None:
        here = read_json(self._run_file)
        if here is None:
            raise ResourceError(
                f"{self._run_file} is damaged: what ran in this workspace is not known; give a new "
                "folder"
            )
        if not resume:
            raise OptionError(
                f"workspace {self.folder} holds a run; pass resume=True to go on with it, or give "
                "a new folder"
            )
        machine, places_then = (here.pop(name, None) for name in NOT_COMPARED)
        for key in sorted(asked.keys() | here.keys()):
            if asked.get(key) != here.get(key):
                raise OptionError(
                    f"workspace {self.folder} holds a run with another {key}: {here.get(key)!r} "
                    f"there, {asked.get(key)!r} now; give a new folder to start afresh"
                )
        if places != places_then:
            logger.warning(
                "the files of the source are others than when the run in %s began, with the sizes, "
                "times and samples of content of those: it goes on, as with a restored copy; give "
                "a new folder if they were replaced",
                self.folder,
            )
        warn_of_another(machine, uses_blas=asked.get("algorithm") == "block")

    def _check_writable(self) -> None:
        """Not hours later: folders that are read-only, or cannot be changed."""
        places = (self.folder, self.folder / "log", self.store, self._state_file)
        for place in (*places, *self._store_files().values()):
            if place.exists() and not os.access(place, os.W_OK):
                raise ResourceError(
                    f"workspace {self.folder} cannot be written: {place} is read-only; make it "
                    "writable, or give another folder"
                )

    def abandon(self) -> None:
        """Leave no file but the lock when not one transform was saved; nothing of another run's."""
        if self._is_ours and self.is_held and not (self.folder / "log").exists():
            self.discard_store()
            with writing(self._run_file):
                self._run_file.unlink(missing_ok=True)

    # ---------------------------------------------------------------------- ingested source

    def save_ingested(self, arrays: dict[str, Array]) -> None:
        """Note that the working store holds the whole source, with its statistics."""
        self._check_held()
        write_arrays(self.folder / "ingested.npz", arrays, self._checksum)

    def load_ingested(self) -> dict[str, Array] | None:
        """What `save_ingested` noted, None when the ingest did not finish."""
        found = read_arrays(self.folder / "ingested.npz", INGESTED, self._checksum)
        if found is None:
            return None
        n, p = self._identity["n_features"], self._identity["n_components"]
        for name, array in found[0].items():
            shape = (p if name == "initial" else n,)
            is_sound = array.shape == shape and array.dtype == np.float64
            if not is_sound or not np.isfinite(array).all():
                return None
        is_sound = (found[0]["scale"] > 0).all() and (found[0]["energies"] >= 0).all()
        return found[0] if is_sound else None

    # ---------------------------------------------------------------------------------- log

    def append(self, log: Log) -> None:
        """Save the transforms that were not saved yet."""
        first, last = self._saved, len(log)
        if last == first:
            return
        self._check_held()
        with writing(self.folder / "log"):
            (self.folder / "log").mkdir(exist_ok=True)
        arrays = log.arrays(first, last)
        self._log_checksum = write_arrays(self._segment(first), arrays, self._log_checksum)
        self._saved = last

    def load_log(self, log: Log) -> None:
        """Fill `log`, which is empty and takes what room it needs, with the saved transforms.

        What comes after a damaged file is made again, with the same bits.
        """
        segments = list((self.folder / "log").glob("*.npz"))
        refuse_other_kinds(self.folder / "log", {path.name: "file" for path in segments})
        parts: list[dict[str, Array]] = []
        saved, total = 0, self._log_checksum
        while found := read_arrays(self._segment(saved), log.NAMES, total):
            part, after = found
            if log_fault(log, part) or not len(part["values"]):
                break
            parts.append(part)
            saved, total = saved + len(part["values"]), after
        if parts:
            log.extend(*(np.concatenate([part[name] for part in parts]) for name in log.NAMES))
        self._saved, self._log_checksum = saved, total
        with writing(self.folder / "log"):
            for path in segments:
                if path.stem.isdigit() and int(path.stem) >= saved:
                    path.unlink()

    def _segment(self, first: int) -> Path:
        return self.folder / "log" / f"{first:015d}.npz"

    # -------------------------------------------------------------------------- store state

    def set_clean(
        self, step: int, n_threads: int, drops_pages: bool, progress: Progress = False
    ) -> None:
        """Note that the working store, flushed, stands at transform `step`, with its checksums.

        It is read once for them. Where that takes its time the note is written before it too, for a
        process that is not given the time.
        """
        files = self._store_files()
        state: dict[str, Any] = {"step": step, "store": _digest(files)}
        size = _total_size(files)
        if size > QUICK:
            self._write_state(state)
        sums = _sums(files, size, n_threads, drops_pages, progress)
        self._write_state(state | {"files": sums})

    def set_dirty(self) -> None:
        """Note that the working store is being written to."""
        self._check_held()
        with writing(self._state_file):
            self._state_file.unlink(missing_ok=True)
            flush_folder(self.folder)

    def clean_step(self) -> int | None:
        """At which transform the working store stands.

        None when it was left in the middle, or was written to since.
        """
        state = self._state()
        is_known = state is not None and state.get("store") == _digest(self._store_files())
        return state["step"] if state is not None and is_known else None

    def is_as_left(self, n_threads: int, drops_pages: bool, progress: Progress = False) -> bool:
        """Whether the working store is what `set_clean` saw; it is read once for that.

        True after a stop that was not given the time for checksums.
        """
        known = (self._state() or {}).get("files")
        if known is None:
            return True
        try:
            files = self._store_files()
            return _sums(files, _total_size(files), n_threads, drops_pages, progress) == known
        except OSError:
            return False  # what cannot be read is made again

    @property
    def _state_file(self) -> Path:
        return self.folder / "state.json"

    def _write_state(self, state: dict[str, Any]) -> None:
        total = checksum_of_json(state, self._checksum)
        self._write_json(self._state_file, state | {"checksum": total})

    def _state(self) -> dict[str, Any] | None:
        state = read_json(self._state_file) or {}
        known = state.pop("checksum", None)
        is_sound = known == checksum_of_json(state, self._checksum)
        return state if is_sound and type(state.get("step")) is int else None

    def _store_files(self) -> dict[str, Path]:
        """All that is in the working store, by name, but for its folders."""
        found = sorted(self.store.rglob("*"))
        return {
            path.relative_to(self.store).as_posix(): path
            for path in found
            if not stat.S_ISDIR(path.lstat().st_mode)
        }

    def discard_store(self) -> None:
        """Forget the working store and what was ingested; the log stays."""
        self.set_dirty()
        with writing(self.store):
            (self.folder / "ingested.npz").unlink(missing_ok=True)
            if self.store.exists():
                shutil.rmtree(self.store)

    def _write_json(self, path: Path, content: dict[str, Any]) -> None:
        self._check_held()
        write_whole(path, json.dumps(content, indent=1).encode())


def _digest(files: dict[str, Path]) -> str:
    """Changes when a file of the working store does: of names, sizes and times."""
    digest = hashlib.sha256()
    for name, path in files.items():
        status = path.lstat()
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _total_size(files: dict[str, Path]) -> int:
    return sum(path.stat().st_size for path in files.values())


def _sums(
    files: dict[str, Path], size: int, n_threads: int, drops_pages: bool, progress: Progress
) -> dict[str, list[Any]]:
    """Checksums of the files of a working store, `size` bytes in all, which are read for them."""
    told = progress if size > QUICK else False
    with progress_bar(told, "checksums", size, unit="bytes") as advance:
        sums = checksums_of_stores(files.values(), n_threads, drops_pages, advance)
    return {name: list(one) for name, one in zip(files, sums, strict=True)}
