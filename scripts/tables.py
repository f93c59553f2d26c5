#!/usr/bin/env python3
"""Writes the tables of docs/ from the recorded JSON that they name.

A page says which rows it shows:

    <!-- table: bench/results/2c/soak.json -->
    <!-- end of table -->

Everything between these two lines is generated, from the list `rows` of the file, or `bars` (criteria) after
`list=bars`. `ids=PREFIX,PREFIX` keeps the rows whose ids begin so.
`--check` writes nothing and fails if a page and its JSON disagree; CI runs that.
"""

import argparse
import difflib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import brief

BLOCK = re.compile(r"^<!-- table: (?P<file>\S+)(?: list=(?P<list>\S+))?(?: ids=(?P<ids>\S+))? -->\n(?P<table>.*?)^<!-- end of table -->$",
                   re.MULTILINE | re.DOTALL)
HEAD = ["what", "median", "unit", "least .. greatest", "criterion", ""]
WORDS = {True: "met", False: "**missed**", None: ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    differ = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        generated = BLOCK.sub(block, text)
        if generated == text:
            continue
        name = page.relative_to(ROOT)
        differ.append(str(name))
        if check:
            lines = difflib.unified_diff(text.splitlines(), generated.splitlines(), str(name), "generated", n=0, lineterm="")
            print("\n".join(lines))
        else:
            page.write_text(generated)
            print(f"wrote {name}")
    if check and differ:
        sys.exit(f"pages and JSON disagree: {', '.join(differ)}; run scripts/tables.py")


def block(found):
    file, ids, name = found["file"], found["ids"], found["list"] or "rows"
    path = ROOT / file
    if not path.is_file():
        sys.exit(f"{file}: no such file")
    recorded = json.loads(path.read_text())
    prefixes = tuple(ids.split(",")) if ids else ("",)
    chosen = [row for row in recorded[name] if row["id"].startswith(prefixes)]
    if not chosen:
        sys.exit(f"{file}: no row begins with {ids}")
    origin = [f"`{recorded['command']}`", recorded.get("date"), recorded["machine"]]
    lines = [", ".join(filter(None, origin)) + ".", "", line(HEAD), line(["---"] * len(HEAD))]
    lines += [line(cells(row)) for row in chosen]
    return "\n".join([found[0].splitlines()[0], *lines, "<!-- end of table -->"])


def cells(row):
    """The cells of a benchmark's row, or of an experiment's criterion."""
    spread = " .. ".join(brief(value) for value in row["spread"])
    if "limit" in row:
        return [f"`{row['id'].removeprefix('bar.')}`", brief(row["ours"]), "", spread, row["limit"], WORDS[row["met"]]]
    return [row["what"], brief(row["value"]), row["unit"], spread, row["bar"] or "", WORDS[row["ok"]]]


def line(texts):
    return "| " + " | ".join(texts) + " |"


if __name__ == "__main__":
    main()
