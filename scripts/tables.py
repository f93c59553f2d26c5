#!/usr/bin/env python3
"""Writes the tables of README.md and docs/ from the recorded JSON that they name.

A page says what a table shows, and this script writes everything between the comment and `<!-- end of table -->`.
There are two forms. The first shows every row of a file:

    <!-- table: bench/results/2c/soak.json -->
    <!-- end of table -->

`ids=PREFIX,PREFIX` selects the rows whose ids begin with one of the prefixes. The second form is a grid, described in
TOML:

    <!-- table
    file = "bench/results/2c/scheduler.json"
    head = "value"
    rows = ["256 B = 256", "1KiB"]
    columns = ["load 0.1 = 0.1", "load 0.3 = 0.3"]
    cell = "[over_best.{row}.load_{column} .3 missed]"
    -->
    <!-- end of table -->

`rows` and `columns` are labels. If the key is not the label, ` = ` and the key follow. Without `cell` the key of a
column is the template of its cells. A row may also be a list: its label and then its cells, or its label alone.
`key` names the field that identifies a row (`id` if not given), and `origin = false` leaves out the line with command,
date and machine. A file may also be a page with tables. Then `key` is a list of columns, and their texts,
joined by points, are the id of a row.

A cell is text with readings in brackets. A reading is the id of a row and the operations on its number, all separated
by spaces:

    id:off.p50          a field of the row instead of its number
    + - * / OPERAND     computes from left to right; the operand is an id or a number
    .2                  two digits after the point
    range               adds the interval or the spread, if there is one
    sign                shows a plus as well as a minus
    missed              adds the verdict if the criterion is missed or not judged
    verdict limit published     shows this field instead of the number
    optional            shows a dash if no row has the id, or the row has no number; otherwise that is an error

`--check` writes nothing and fails if a page and its JSON disagree; CI runs that.
"""

import argparse
import difflib
import json
import operator
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import brief

END = r"\n.*?^<!-- end of table -->$"
LISTING = re.compile(r"^<!-- table: (?P<file>\S+)(?: ids=(?P<ids>\S+))? -->" + END, re.MULTILINE | re.DOTALL)
GRID = re.compile(r"^<!-- table\n(?P<spec>.*?)^-->" + END, re.MULTILINE | re.DOTALL)
READING = re.compile(r"\[([^\]]+)\]")
HEAD = ["what", "median", "unit", "least .. greatest", "criterion", ""]
VERDICTS = {True: "passed", False: "**missed**", None: ""}
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
FLAGS = {"range", "missed", "verdict", "limit", "published", "sign", "optional"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    differ = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        name = page.relative_to(ROOT)
        try:
            listed, listings = LISTING.subn(listing_block, text)
            generated, grids = GRID.subn(grid_block, listed)
        except (ValueError, KeyError, OSError) as error:
            sys.exit(f"{name}: {type(error).__name__}: {error}")
        if listings + grids != len(re.findall(r"^<!-- table", text, re.MULTILINE)):
            sys.exit(f"{name}: a table has no end, or a comment that is not understood")
        if generated == text:
            continue
        differ.append(str(name))
        if check:
            sides = text.splitlines(), generated.splitlines()
            lines = difflib.unified_diff(*sides, str(name), "generated", n=0, lineterm="")
            print("\n".join(lines))
        else:
            page.write_text(generated)
            print(f"wrote {name}")
    if check and differ:
        sys.exit(f"pages and JSON disagree: {', '.join(differ)}; run scripts/tables.py")


def listing_block(found):
    recorded = json.loads((ROOT / found["file"]).read_text())
    prefixes = tuple(found["ids"].split(",")) if found["ids"] else ("",)
    chosen = [row for row in recorded["rows"] if row["id"].startswith(prefixes)]
    if not chosen:
        raise ValueError(f"{found['file']}: no row begins with {found['ids']}")
    lines = [*origin(recorded), line(HEAD), line(["---"] * len(HEAD)), *(line(listing_cells(row)) for row in chosen)]
    return "\n".join([found[0].splitlines()[0], *lines, "<!-- end of table -->"])


def listing_cells(row):
    spread = " .. ".join(brief(value) for value in row["spread"])
    return [row["what"], brief(row["value"]), row["unit"], spread, row["bar"] or "", VERDICTS[row["ok"]]]


def grid_block(found):
    spec = tomllib.loads(found["spec"])
    key = spec.get("key", "id")
    recorded = load((ROOT / spec["file"]).read_text(), key)
    index = by_id(recorded, "id" if isinstance(key, list) else key)
    above = origin(recorded) if spec.get("origin", True) else [""]
    return "\n".join(["<!-- table", found["spec"] + "-->", *above, *grid(spec, index), "<!-- end of table -->"])


def load(text, key):
    """Returns the content of a recorded file: JSON, or the rows of a page's tables that have all columns in the key.

    >>> load("| class | bytes | time us |\\n|---|---|---|\\n| html | 1024 | 2.35 |", ["class", "bytes"])
    [{'class': 'html', 'bytes': 1024.0, 'time_us': 2.35, 'id': 'html.1024'}]
    """
    if not isinstance(key, list):
        return json.loads(text)
    head, rows, before = [], [], []
    for row in (found for found in text.splitlines() if found.startswith("|")):
        texts = [cell.strip() for cell in row.strip("|").split("|")]
        if texts[0].startswith("---"):
            head = [cell.replace(" ", "_") for cell in before]
        elif head and set(key) <= set(head):
            fields = dict(zip(head, texts))
            numbers = {name: float(cell) for name, cell in fields.items() if re.fullmatch(r"[0-9.]+", cell)}
            rows.append({**fields, **numbers, "id": ".".join(fields[name] for name in key)})
        before = texts
    return rows


def origin(recorded):
    """Returns the line above a table that states the origin of its numbers."""
    if isinstance(recorded, list):
        return [""]
    said = [f"`{recorded['command']}`", recorded.get("date"), recorded["machine"]]
    return [", ".join(filter(None, said)) + ".", ""]


def by_id(recorded, key="id"):
    """Returns the rows of a file by their ids. Each row gets its criterion, which has the same id."""
    lists, index = {"rows": recorded} if isinstance(recorded, list) else recorded, {}
    for name in ("rows", "bars"):
        for row in lists.get(name, []):
            index.setdefault(row[key].removeprefix("bar."), {}).update(row)
    return index


def grid(spec, index):
    """Returns the lines of a table.

    >>> index = by_id([{"id": "p50.a.1", "value": 1500, "spread": [1000, 2000], "bar": "<= 1000", "ok": False},
    ...                {"id": "p50.b.1", "ours": 3, "ci95": None, "published": 2.5}])
    >>> spec = {"head": "side", "rows": ["first = a", "b"], "columns": ["one = 1"],
    ...         "cell": "[p50.{row}.{column} / 1000 .1 range]"}
    >>> print("\\n".join(grid(spec, index)))
    | side | one |
    | --- | --- |
    | first | 1.5 (1.0 .. 2.0) |
    | b | 0.0 |
    >>> spec = {"head": "", "rows": [["b", "[p50.b.1 published]"]], "columns": ["published"]}
    >>> grid(spec, index)[-1]
    '| b | 2.5 |'
    """
    columns = [labelled(text) for text in spec["columns"]]
    lines = [line([spec["head"], *(label for label, _ in columns)]), line(["---"] * (len(columns) + 1))]
    for row in spec["rows"]:
        if isinstance(row, list):
            label, cells = row[0], row[1:]
        else:
            label, key = labelled(row)
            cells = [fill(spec.get("cell", column), key, column) for _, column in columns]
        cells = [READING.sub(lambda found: reading(found[1], index), cell) for cell in cells]
        if cells and not re.search(r"\w|\*", "".join(cells)):
            raise ValueError(f"the row {label} has no number in any cell")
        lines.append(line([label, *cells, *[""] * (len(columns) - len(cells))]))
    return lines


def fill(template, row, column):
    """Fills the keys of row and column into a template. The key of a row may contain `{column}`, and vice versa.

    >>> fill("[p50.{row}]", "lane.get{column}.set", "90")
    '[p50.lane.get90.set]'
    """
    return template.replace("{column}", column).replace("{row}", row).replace("{column}", column)


def labelled(text):
    """Splits a text into a label and its key.

    >>> labelled("256 B = 256"), labelled("1KiB")
    (('256 B', '256'), ('1KiB', '1KiB'))
    """
    label, _, key = text.partition(" = ")
    return label, key or label


def reading(text, index):
    """Returns the text that a cell shows for the words between brackets.

    >>> index = {"a": {"value": 4, "low": 3, "high": 5, "bar": 4}, "b": {"ours": 2, "met": False, "limit": ">= 3"}}
    >>> [reading(text, index) for text in ("a range", "a / b .2", "b missed", "b limit", "a verdict", "c optional")]
    ['4 (3 .. 5)', '2.00', '2 **missed**', '>= 3', 'passed', '-']
    >>> reading("preset:off.hits", {"preset": {"off": {"hits": {"median": 0.5, "min": 0, "max": 1}}}})
    '0.5'
    >>> reading("c", index)
    Traceback (most recent call last):
    ValueError: no row has the id c
    """
    name, *words = text.split()
    try:
        first = look_up(name, index)
    except ValueError:
        if "optional" in words:
            return "-"
        raise
    values = [first["value"], *first["range"]]
    while words and words[0] in OPERATORS:
        apply, operand, words = OPERATORS[words[0]], words[1], words[2:]
        if re.fullmatch(r"[0-9.]+", operand):
            values = [apply(value, float(operand)) for value in values]
        else:
            values = [apply(values[0], look_up(operand, index)["value"])]
    unknown = [word for word in words if word not in FLAGS and not re.fullmatch(r"\.\d", word)]
    if unknown:
        raise ValueError(f"[{text}]: {unknown[0]} is not known")
    for what in ("verdict", "limit"):
        if what in words:
            return first[what]
    sign = "+" if "sign" in words else ""
    digits = next((word[1] for word in words if word.startswith(".")), None)
    show = (lambda value: f"{value:{sign},.{digits}f}") if digits else brief
    if "published" in words:
        return show(first["published"])
    shown = show(values[0])
    if "range" in words and len(values) == 3:
        shown += f" ({show(values[1])} .. {show(values[2])})"
    told = first["verdict"] if "missed" in words else ""
    return shown + (f" {told}" if told not in ("", VERDICTS[True]) else "")


def look_up(name, index):
    """Returns a row, or a field of it, under one set of names, because the kinds of files have different names."""
    row_id, _, path = name.partition(":")
    if row_id not in index:
        raise ValueError(f"no row has the id {row_id}")
    row = index[row_id]
    for field in filter(None, path.split(".")):
        if field not in row:
            raise ValueError(f"{row_id} has no {field}")
        row = row[field]
    if not isinstance(row, dict):
        row = {"value": row}
    value = next((row[field] for field in ("ours", "value", "median") if row.get(field) is not None), None)
    if value is None:
        raise ValueError(f"{name} has no number")
    ends = [[row.get("low"), row.get("high")], [row.get("min"), row.get("max")]]
    spread = row.get("ci95") or row.get("spread") or next((pair for pair in ends if None not in pair), [])
    limit, passed = row.get("limit") or row.get("bar"), row.get("met", row.get("ok"))
    if isinstance(limit, (int, float)):
        limit, passed = f">= {limit}", value >= limit
    verdict = "not judged" if limit and passed is None else VERDICTS[passed]
    return {"value": value, "range": spread, "limit": limit or "", "verdict": verdict,
            "published": row.get("published")}


def line(texts):
    return "| " + " | ".join(texts) + " |"


if __name__ == "__main__":
    main()
