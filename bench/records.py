#!/usr/bin/env python3
"""How many records do `rebate memcached` and memcached hold in the same memory, and how many gets hit?

This is the first part of `rebate demo`, several times. Both caches get the same `-m`, one thread and the same requests
for four kinds of small values: JSON, sessions of PHP, protobuf and fragments of HTML. Every record is set once, all
together do not fit, gets follow Zipf's law, and a miss is set. The table of README.md shows the results.
"""

import json
import subprocess

from harness import BINARY, SCRATCH, Bench, fail, ratios

MEMORY = "32MiB"
KINDS = ["record-json", "record-session", "record-protobuf", "record-html"]
CACHES = ["memcached", "rebate"]
NUMBERS = [("items", "items", "items held"), ("hit_ratio", "hits over gets", "hit ratio"),
           ("cpu_us", "us", "CPU time per get"), ("refused", "sets", "refused sets"), ("rss_bytes", "B", "RSS")]


def main():
    bench = Bench("records", __doc__, runs=3)
    runs = [demo("2MiB" if bench.quick else MEMORY) for _ in bench.each_run()]
    for kind in KINDS:
        bench.row(f"record_bytes.{kind}", f"{kind}: size", [run[kind]["record_bytes"] for run in runs], "B")
        found = {cache: [run[kind][cache] for run in runs] for cache in CACHES}
        for number, unit, what in NUMBERS:
            for cache in CACHES:
                bench.row(f"{number}.{cache}.{kind}", f"{kind}: {what}, {cache}",
                          [values[number] for values in found[cache]], unit)
        items = [[values["items"] for values in found[cache]] for cache in CACHES]
        bench.row(f"ratio.items.{kind}", f"{kind}: items where memcached holds 1", ratios(items[1], items[0]), "ratio")
    bench.finish()


def demo(memory):
    """Runs the part of the demo. Returns the results of each kind by its name."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    command = [BINARY, "demo", "--part", "records", "--records-memory", memory, "--json",
               "--report", SCRATCH / "records.html"]
    kinds = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["records"]["kinds"]
    if any(kind["memcached"] is None for kind in kinds):
        fail("memcached is not installed")
    return {kind["class"]: kind for kind in kinds}


if __name__ == "__main__":
    main()
