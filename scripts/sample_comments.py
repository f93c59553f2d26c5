#!/usr/bin/env python3
"""Prints a random sample of the doc comments of all Rust crates, for readers who judge them.

Each comment is printed whole, with a number, its file and line, the type or block that it is in, and
the first line of the item that it describes. The same seed and the same sources give the same sample.
"""

import argparse
import pathlib
import random
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    arguments = parse_arguments()
    comments = [comment for path in rust_files() for comment in comments_of(path)]
    count = min(arguments.count, len(comments))
    sample = random.Random(arguments.seed).sample(comments, count)
    print(f"{count} of {len(comments)} doc comments, seed {arguments.seed}\n")
    for number, (place, outer, lines, item) in enumerate(sample, 1):
        print(f"{number}. {place}" + (f", in {outer}" if outer else ""))
        print("\n".join(f"    {line}" for line in [*lines, item] if line))
        print()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the random choice (default: 1)")
    parser.add_argument("--count", type=int, default=200, help="comments (default: 200)")
    return parser.parse_args()


def rust_files():
    """Returns the tracked Rust files that a person wrote, in a fixed order."""
    command = ["git", "-C", str(ROOT), "ls-files", "*.rs"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [ROOT / name for name in sorted(names) if "generated" not in name.split("/")]


def comments_of(path):
    """Yields (place, enclosing block, comment lines, item) for each block of `///` or `//!`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = 0
    while start < len(lines):
        marker = marker_of(lines[start])
        end = start + 1
        if marker:
            while end < len(lines) and marker_of(lines[end]) == marker:
                end += 1
            block = [line.strip() for line in lines[start:end]]
            item = "" if marker == "//!" else item_after(lines, end)
            yield f"{path.relative_to(ROOT)}:{start + 1}", enclosing(lines, start), block, item
        start = end


def enclosing(lines, start):
    """Returns the first line of the block that the comment at `start` is in; empty at the top level."""
    indent = indent_of(lines[start])
    for line in reversed(lines[:start]):
        if indent and line.rstrip().endswith("{") and indent_of(line) < indent:
            return line.strip().rstrip("{").strip()
    return ""


def indent_of(line):
    return len(line) - len(line.lstrip())


def marker_of(line):
    text = line.strip()
    if text.startswith("////"):
        return None
    return next((marker for marker in ("///", "//!") if text.startswith(marker)), None)


def item_after(lines, start):
    """Returns the first line after a comment that is neither an attribute nor a comment."""
    for line in lines[start:]:
        text = line.strip()
        if text and not text.startswith(("#[", "//")):
            return text
    return ""


if __name__ == "__main__":
    main()
