"""Results that outlive their process: one file a point in a directory that the caller names.

A file says whose results it has; it is there whole or not at all, whoever is interrupted when. Nothing is removed.
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
    """The directory."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._folder = Path(path)
        self._folder.mkdir(parents=True, exist_ok=True)

    def find(self, identity: dict[str, Any]) -> list[dict[str, Any]] | None:
        """What was kept of it; None if nothing was, or what is there cannot be read."""
        try:
            found = json.loads(self._path(identity).read_text(encoding="utf-8"))
            runs: list[dict[str, Any]] | None = found["runs"] if found["of"] == identity else None
        except (OSError, KeyError, TypeError, ValueError):
            # Text that is no UTF-8 is a ValueError, too.
            return None
        return runs

    def keep(self, identity: dict[str, Any], runs: list[dict[str, Any]]) -> None:
        """Writes it beside its place, and then moves it there."""
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
