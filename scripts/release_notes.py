#!/usr/bin/env python3
"""Prints the section of a version in the CHANGELOG as release notes, in which every link works.

Links in the CHANGELOG are relative to the repository, and release notes are read elsewhere. With --url they become links
to the files of --revision at that address. Without it, the path of the file takes the place of the link. If the
CHANGELOG has no section of the version, its section Unreleased is printed.
Exit codes: 0 printed, 1 there is no section, or a link leads to no file, 2 bad usage.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?P<open>\()?\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)(?P<close>\))?")


def main():
    flags = arguments()
    sections = parts((ROOT / "CHANGELOG.md").read_text())
    section = next((text for title, text in sections if title.split()[0] == flags.version), None)
    if section is None:
        section = dict(sections).get("Unreleased", "")
        print(f"CHANGELOG.md has no section {flags.version}: the notes are those of Unreleased", file=sys.stderr)
    if not section.strip():
        sys.exit("CHANGELOG.md has no notes for this version")
    print(LINK.sub(lambda link: replaced(link, flags), section).strip())


def parts(text):
    """Returns the title and the text of each section."""
    pieces = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2]))


def replaced(link, flags):
    target = link["target"]
    if re.match(r"[a-z]+:", target):
        return link[0]
    path, _, anchor = target.partition("#")
    if not (ROOT / path).exists():
        sys.exit(f"CHANGELOG.md: the link to {target} leads to no file")
    before, after = link["open"] or "", link["close"] or ""
    if flags.url:
        place = f"{flags.url.rstrip('/')}/blob/{flags.revision}/{path}{'#' + anchor if anchor else ''}"
        return f"{before}[{link['text']}]({place}){after}"
    # A link in parentheses of its own says no more than its path.
    alone = before and after
    return f"(`{path}`)" if alone else f"{before}{link['text']} (`{path}`){after}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the version, such as 0.1.0")
    parser.add_argument("--url", help="the address of the repository, such as https://github.com/OWNER/NAME")
    parser.add_argument("--revision", help="the tag or commit of the files (vVERSION)")
    flags = parser.parse_args()
    flags.revision = flags.revision or f"v{flags.version}"
    return flags


if __name__ == "__main__":
    main()
