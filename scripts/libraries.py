#!/usr/bin/env python3
"""Prints which libraries are in the program: their licences, each text once, or a list in CycloneDX's form.

Usage: scripts/libraries.py licences TARGET [CRATE]
       scripts/libraries.py cyclonedx TARGET

CRATE is the workspace's crate that is built; the program is cli. Only what is linked is listed, not what builds and
tests need. SOURCE_DATE_EPOCH is the date of the list.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ("licen", "copying", "notice", "copyright", "unlicense")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def crates_of(target, crate="cli"):
    """The crates that one of the workspace is built of, those of the workspace too, and the ids that each needs."""
    tree = run("cargo", "tree", "--locked", "-p", crate, "-e", "normal", "--target", target,
               "--prefix", "none", "--format", "{p}")
    wanted = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    everything = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1",
                                "--filter-platform", target))
    crates = {package["id"]: package for package in everything["packages"]
              if (package["name"], "v" + package["version"]) in wanted}
    needs = {node["id"]: [dep["pkg"] for dep in node["deps"] if dep["pkg"] in crates
                          and any(kind["kind"] is None for kind in dep["dep_kinds"])]
             for node in everything["resolve"]["nodes"] if node["id"] in crates}
    in_order = sorted(crates.values(), key=lambda crate: (crate["name"], crate["version"]))
    return in_order, needs


def texts_of(crate):
    """The texts of licences in a crate, and in the foreign sources that it brings."""
    folder = pathlib.Path(crate["manifest_path"]).parent
    found = [*folder.iterdir(), *folder.glob("*/*"), *folder.glob("LICENSES/*")]
    for path in sorted(set(found)):
        is_text = path.suffix.lower() in ("", ".txt", ".md") or path.stem.lower() in NAMES
        if path.is_file() and is_text and path.name.lower().startswith(NAMES):
            yield path.read_text(encoding="utf-8", errors="replace").strip()


def licences(target, crate="cli"):
    users, without = defaultdict(list), []
    print("Rebate contains these libraries, under these licences:\n")
    for library in crates_of(target, crate)[0]:
        if not library["source"]:
            continue
        label = f"{library['name']} {library['version']}"
        print(f"  {label}: {library['license'] or 'see its text'}")
        texts = list(texts_of(library))
        for text in texts:
            users[text].append(label)
        if not texts:
            without.append(label)
    if without:
        print("\nThese have no text of their own, and are under the licence above: " + ", ".join(without))
    for text, labels in users.items():
        print("\n" + "=" * 100 + "\n" + ", ".join(dict.fromkeys(labels)) + "\n")
        print(text)


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    return {(package["name"], package["version"]): package["checksum"]
            for package in lock["package"] if "checksum" in package}


def component(crate, known):
    made = {"type": "library", "bom-ref": reference(crate), "name": crate["name"],
            "version": crate["version"], "scope": "required"}
    if crate["license"]:
        # Cargo's old form of OR is not one of SPDX.
        made["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", crate["license"])}]
    if crate["source"]:
        made["purl"] = f"pkg:cargo/{crate['name']}@{crate['version'].replace('+', '%2B')}"
        made["hashes"] = [{"alg": "SHA-256", "content": known[crate["name"], crate["version"]]}]
    return made


def reference(crate):
    return f"{crate['name']}@{crate['version']}"


def cyclonedx(target):
    crates, needs = crates_of(target)
    by_id, known = {crate["id"]: crate for crate in crates}, checksums()
    [program] = [crate for crate in crates if crate["name"] == "cli"]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or None
    date = datetime.datetime.fromtimestamp(epoch, datetime.UTC) if epoch else datetime.datetime.now(datetime.UTC)
    about = component(program, known) | {"type": "application", "name": "rebate"}
    del about["scope"]
    print(json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": about,
                     "properties": [{"name": "cargo:target", "value": target}]},
        "components": [component(crate, known) for crate in crates if crate is not program],
        "dependencies": [{"ref": reference(by_id[one]),
                          "dependsOn": sorted({reference(by_id[other]) for other in others})}
                         for one, others in sorted(needs.items(), key=lambda pair: reference(by_id[pair[0]]))],
    }, indent=1))


def main():
    forms = {"licences": licences, "cyclonedx": cyclonedx}
    # A list is of the program only.
    counts = {"licences": (3, 4), "cyclonedx": (3,)}
    if len(sys.argv) not in counts.get(sys.argv[1] if len(sys.argv) > 1 else "", ()):
        print(__doc__, file=sys.stderr)
        return 2
    forms[sys.argv[1]](*sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
