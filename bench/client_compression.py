#!/usr/bin/env python3
"""Compares compression in the cache with compression in the client, which is what users do today.

A pylibmc client uses one connection and 64 KiB html values. Each side stores in its own memcached:
- client: pylibmc compresses (`min_compress_len=1`, at its default level, which is zlib's default of 6) and talks
  to memcached.
- rebate: the same client without compression talks to `rebate serve --compress on` in front of memcached.
Criteria: the set p50 of rebate is at most a quarter of the client's, and its get p50 is at most the client's. The
bytes that memcached holds are at most those of zlib level 1 on the same values (a ratio of sums).
Times are of the client's calls. A run passes over the values several times, and the sides take turns with every
pass. Values that are read are compared with the values that were set.
"""

import os
import statistics
import subprocess
import sys
import time
import venv
import zlib

from harness import PATIENCE_S, SCRATCH, Bench, fail, html_pages, memcached, ratios, rebate

PYLIBMC = "pylibmc==1.6.3"
COMPRESSING = {"min_compress_len": 1}


def main():
    ensure_pylibmc()
    bench = Bench("client_compression", __doc__, flags=lambda parser: parser.add_argument(
        "--corpus", metavar="DIR", help="html files to cut values from (default: /usr/share/doc)"))
    pages, source = html_pages(bench.flags.corpus, 8 if bench.quick else 100)
    print(f"values: {len(pages)} of 64 KiB, {source}")
    with (memcached("-m", "256") as plain, memcached("-m", "256") as store,
          rebate("--compress", "on", "--store", f"memcached://{store.address}") as ours):
        sides = {"client": Side(plain, COMPRESSING), "rebate": Side(ours, {})}
        for run in bench.each_run():
            for number in range(1 if bench.quick else 5):
                order = list(sides.values())
                for side in order if (run + number) % 2 else reversed(order):
                    side.set_all(pages)
                    side.get_all(pages)
            for side in sides.values():
                side.end_run()
        stored = {"client": stored_bytes(plain, pages), "rebate": stored_bytes(store, pages)}
    report(bench, sides, stored, pages)


class Side:
    """A client of one server, and the times of its calls."""

    def __init__(self, server, how):
        import pylibmc
        behaviors = {"tcp_nodelay": True, "_poll_timeout": PATIENCE_S * 1000}
        self.client = pylibmc.Client([server.address], behaviors=behaviors)
        self.how = how
        self.now_us = {"set": [], "get": []}
        self.p50_us = {"set": [], "get": []}

    def set_all(self, pages):
        for number, page in enumerate(pages):
            start = time.perf_counter_ns()
            done = self.client.set(key(number), page, **self.how)
            self.now_us["set"].append((time.perf_counter_ns() - start) / 1e3)
            if not done:
                fail(f"{key(number)} was not stored")

    def get_all(self, pages):
        for number, page in enumerate(pages):
            start = time.perf_counter_ns()
            found = self.client.get(key(number))
            self.now_us["get"].append((time.perf_counter_ns() - start) / 1e3)
            if found != page:
                fail(f"{key(number)} reads back differently")

    def end_run(self):
        for op, times in self.now_us.items():
            self.p50_us[op].append(statistics.median(times))
            times.clear()


def report(bench, sides, stored, pages):
    for op, bar in [("set", 0.25), ("get", 1)]:
        for name, side in sides.items():
            bench.row(f"p50.{name}.64KiB.{op}", f"{name}: {op} p50", side.p50_us[op], "us")
        bench.row(f"ratio.p50.rebate_over_client.64KiB.{op}", f"rebate over client: {op} p50",
                  ratios(sides["rebate"].p50_us[op], sides["client"].p50_us[op]), "ratio",
                  at_most=bar)
    stored["zlib1"] = sum(len(zlib.compress(page, 1)) for page in pages)
    for name, count in stored.items():
        bench.row(f"stored_bytes.{name}.64KiB", f"{name}: stored bytes of a value",
                  [count / len(pages)], "B")
    bench.row("ratio.stored_bytes.rebate_over_zlib1.64KiB",
              "rebate over zlib level 1: stored bytes", [stored["rebate"] / stored["zlib1"]],
              "ratio", at_most=1)
    bench.row("ratio.stored_bytes.rebate_over_client.64KiB", "rebate over client: stored bytes",
              [stored["rebate"] / stored["client"]], "ratio")
    bench.finish()


def stored_bytes(server, pages):
    return sum(len(server.stored(key(number))) for number in range(len(pages)))


def key(number):
    return f"page:{number}"


def ensure_pylibmc():
    """Continues in an environment that has pylibmc. If there is none, makes one under target/."""
    try:
        import pylibmc  # noqa: F401
        return
    except ImportError:
        place = SCRATCH / "python"
    python = place / "bin" / "python3"
    if sys.prefix == str(place):
        fail(f"{place} has no working pylibmc: delete it to make it anew")
    if not python.exists():
        venv.create(place, with_pip=True)
    if subprocess.run([python, "-c", "import pylibmc"], capture_output=True).returncode:
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", PYLIBMC])
        if done.returncode:
            fail(f"cannot install {PYLIBMC} in {place}")
    os.execv(python, [python, *sys.argv])


if __name__ == "__main__":
    main()
