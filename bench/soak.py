#!/usr/bin/env python3
"""Checks that memory stays constant over ten million requests (`--requests`).

`rebate serve` with the embedded store of 64 MiB runs under one `rebate load`. The load is a closed loop with 16
requests in flight on each of 16 connections, 80 % gets, a set after every miss, and html values of 100 B to 16 KiB.
There are more keys than fit, so the store is full and evicts. Every value that is read is compared with what was
written. Resident memory (VmRSS) is read after every tenth of the requests. Criterion: the last value is at most 1.05 x
the first.
"""

import signal
import time

from harness import Bench, fail, load_report, rebate, start_load

STEPS = 10
LOAD = ["--in-flight", 16, "-c", 16, "--get-share", 0.8, "--set-on-miss", "--no-prepopulate",
        "--keys", 200_000, "--value-size", "100..16KiB", "--payload", "html", "--warmup", "0s",
        "-d", "86400s"]


def main():
    bench = Bench("soak", __doc__, runs=1, flags=lambda parser: parser.add_argument(
        "--requests", type=int, metavar="N", help="in all (default: 10000000; quick: 50000)"))
    requests = bench.flags.requests or (50_000 if bench.quick else 10_000_000)
    found = []
    for _ in bench.each_run():
        with rebate("--store", "embedded", "--memory", "64MiB") as server:
            found.append(one_run(server, requests))
    report(bench, requests, found)


def one_run(server, requests):
    """Runs the load once. Returns the resident memory after each step, and the store's statistics at the end."""
    load = start_load(server, *map(str, LOAD))
    rss_mib, start = [], time.monotonic()
    try:
        while len(rss_mib) < STEPS:
            time.sleep(0.05)
            stats = server.stats()
            done = int(stats["cmd_get"]) + int(stats["cmd_set"])
            if done >= requests * (len(rss_mib) + 1) / STEPS:
                rss_mib.append(server.rss_bytes() / (1 << 20))
                print(f"  {done:>12,} requests  {rss_mib[-1]:8.1f} MiB  "
                      f"{time.monotonic() - start:6.0f} s", flush=True)
            if load.poll() is not None:
                break
    finally:
        load.send_signal(signal.SIGINT)
    result = load_report(load)
    if len(rss_mib) < STEPS:
        fail("the load ended before its requests were done")
    return {"rss_mib": rss_mib, "evictions": int(stats["evictions"]),
            "hits": result["get"]["hit_ratio"] * 100,
            "per_s": requests / (time.monotonic() - start)}


def report(bench, requests, found):
    for step in range(STEPS):
        bench.row(f"rss.after_{step + 1}_of_{STEPS}",
                  f"resident memory after {requests * (step + 1) // STEPS:,} requests",
                  [run["rss_mib"][step] for run in found], "MiB")
    growth = [run["rss_mib"][-1] / run["rss_mib"][0] for run in found]
    # The first step of a short run does not fill the store, so there is no criterion.
    bench.row("ratio.rss.last_over_first", "last over first", growth, "ratio",
              at_most=None if requests < STEPS * 100_000 else 1.05)
    bench.row("rate.closed_loop", "requests per second", [run["per_s"] for run in found],
              "requests/s")
    bench.row("hit_ratio", "gets that hit", [run["hits"] for run in found], "%")
    bench.row("evictions", "evictions", [run["evictions"] for run in found], "items")
    bench.finish()


if __name__ == "__main__":
    main()
