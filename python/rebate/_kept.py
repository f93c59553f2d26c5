"""Stores results on disk, so that they outlive their process. Each point of a sweep is one file in a directory that the
caller names.

A file states which point its results belong to. A file is written whole or not at all, even if a process is
interrupted. No file is ever removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any


class Kept:
    """The directory of stored results."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._folder = Path(path)
        self._folder.mkdir(parents=True, exist_ok=True)

    def find(self, identity: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Returns the stored results of a point. Returns None if there are none, or if the file cannot be read."""
        try:
            found = json.loads(self._path(identity).read_text(encoding="utf-8"))
            runs: list[dict[str, Any]] | None = found["runs"] if found["of"] == identity else None
        except (OSError, KeyError, TypeError, ValueError):
            # Text that is not UTF-8 also raises a ValueError.
            return None
        return runs

    def keep(self, identity: dict[str, Any], runs: list[dict[str, Any]]) -> None:
        """Writes the results to a temporary file, and then renames it."""
        descriptor, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as part:
                json.dump({"of": identity, "runs": runs}, part)
                part.flush()
                os.fsync(part.fileno())
            os.replace(name, self._path(identity))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise

    def _path(self, identity: dict[str, Any]) -> Path:
        text = json.dumps(identity, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
