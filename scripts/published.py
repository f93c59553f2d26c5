#!/usr/bin/env python3
"""Writes experiments/src/base/published.tsv: the published number of each row, by experiment and id.

Usage: scripts/published.py RESULT.json...

The results come from `rebate reproduce`. A row that is in the list already keeps its number, and another number in a
result is an error: a published number does not change because something was measured again. Remove the line first if the
number was read wrongly from the paper.
"""
import json
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "experiments/src/base/published.tsv"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    listed = {}
    if LIST.exists():
        for line in LIST.read_text().splitlines():
            name, key, number = line.split("\t")
            listed[name, key] = float(number)
    for path in sys.argv[1:]:
        record = json.loads(Path(path).read_text())
        for row in record["rows"]:
            if row["published"] is None:
                continue
            key = record["name"], row["id"]
            known = listed.setdefault(key, row["published"])
            if abs(known - row["published"]) > 1e-9 * abs(known):
                sys.exit(f"{path}: {row['id']} has {row['published']} as published, the list has {known}")
    lines = [f"{name}\t{key}\t{number!r}\n" for (name, key), number in sorted(listed.items())]
    LIST.write_text("".join(lines))
    print(f"{len(lines)} published numbers in {LIST}")


if __name__ == "__main__":
    main()
