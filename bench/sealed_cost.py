#!/usr/bin/env python3
"""What does it cost the server to keep values encrypted?

Two servers on one core keep the same text, one compressed (`path = ["compress"]`) and one compressed and encrypted
(`path = ["compress", "encrypt"]`). Software does all of it. A near client on another core sets or gets one value after the
other (the example `closed_loop` of rebate-client). Both sides poll, so nobody sleeps, and what a request takes longer is
processor time of the server. Values that are read often are not kept decompressed (`values.hot_share=0`).
Criteria: a get of 1 KiB takes at most 3 us more, and one of 64 KiB at most 1.2 times as long.
The sides take turns within a run, and each run begins with another side.
"""

import json
import os
import pathlib
import subprocess
import tempfile
from contextlib import ExitStack

from harness import PATIENCE_S, Bench, example, fail, need_example, placed, ratios, rebate, sealing_keys, turns

LOOP = example("closed_loop")
SIZES = {"1KiB": 1 << 10, "64KiB": 64 << 10}
PATHS = {"plain": "compress", "sealed": "compress,encrypt"}
OPS = ("set", "get")
KEYS = 64
POLL_US = 500


def main():
    bench = Bench("sealed_cost", __doc__)
    need_example(LOOP)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        fail("the servers and the client need a core each")
    with ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keys = sealing_keys(folder)
        with placed(cores[:1]):
            for name, path in PATHS.items():
                stack.enter_context(server(path, keys, folder / name))
        found = {}
        with placed(cores[-1:]):
            for run in bench.each_run():
                for side in turns(list(PATHS), run):
                    for size in SIZES:
                        for op in OPS:
                            found.setdefault((side, size, op), []).append(p50_us(bench, [LOOP, f"near:{folder / side}"], op, size))
    report(bench, found)


def server(path, keys, near):
    settings = {"values.keys": keys, "values.path": path, "values.hot_share": "0"}
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return rebate("--compress", "on", "--codec", "deflate", "--store", "embedded", "--memory", "256MiB", "--threads", "1",
                  "--workers", "0", "--near-listen", near, *flags)


def p50_us(bench, client, op, size):
    words = ["--op", op, "--keys", KEYS, "--value-bytes", SIZES[size], "--text", "--poll-max-us", POLL_US,
             "--seconds", 0.2 if bench.quick else 2]
    command = list(map(str, [*client, *words]))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        fail(done.stderr)
    return json.loads(done.stdout)["p50_ns"] / 1e3


def report(bench, found):
    for size in SIZES:
        for op in OPS:
            for side in PATHS:
                bench.row(f"p50.{side}.{size}.{op}", f"{side}: {op} of {size}, p50", found[side, size, op], "us")
            sealed, plain = (found[side, size, op] for side in ("sealed", "plain"))
            more = [ours - theirs for ours, theirs in zip(sealed, plain)]
            bench.row(f"more.{size}.{op}", f"{op} of {size}: sealed less plain", more, "us",
                      at_most=3 if (size, op) == ("1KiB", "get") else None)
            bench.row(f"ratio.{size}.{op}", f"{op} of {size}: sealed over plain", ratios(sealed, plain), "1",
                      at_most=1.2 if (size, op) == ("64KiB", "get") else None)
    bench.finish()


if __name__ == "__main__":
    main()
