#!/usr/bin/env python3
"""Measures the cost of a proxy in front of memcached that does not compress.

Three sides use one memcached process: rebate (`serve --compress off --threads 1`), nutcracker (twemproxy, ketama over
fnv1a) and, as a reference, memcached without a proxy.
- Saturation: memcaslap with 1 thread, 16 connections, 1 KiB values and 90 % gets. Criterion: the requests per second of
  rebate divided by those of nutcracker are at least 1.25.
- Fixed rate: `rebate load` with 10,000 requests/s, uniform gaps, 16 connections, 1 KiB random values and 90 % gets.
  Criterion: the p50 of rebate divided by that of nutcracker is at most 1, for gets and for sets. This is measured with
  the proxy on a core of its own and everything else on the others ("placed"), and with all processes where the
  kernel's scheduler puts them ("free").
CPU per request is the user and system time of the proxy in the saturated phase, divided by the requests. For the
phases with a fixed rate, `run` is the time that the proxy ran, and `wait` is the time that it waited for a core while
ready to run. The sides take turns within a run, and each run begins with another side.
"""

import os

from harness import (Bench, fail, load, memcached, memcaslap, nutcracker, placed, ratios, rebate,
                     turns, us)

SIDES = ["rebate", "nutcracker", "memcached"]
RATE_PER_S = 10_000
WARMUP_S = 1


def main():
    bench = Bench("passthrough", __doc__)
    seconds = 1 if bench.quick else 8
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        fail("needs two cores or more, one of them for the proxy alone")
    own = {max(cores)}
    saturated = {side: [] for side in SIDES}
    cpu_us = {side: [] for side in SIDES}
    paced = {where: {side: [] for side in SIDES} for where in ["placed", "free"]}
    with (memcached("-m", "1024") as store, nutcracker(store) as proxy,
          rebate("--compress", "off", "--threads", "1", "--store",
                 f"memcached://{store.address}") as ours):
        servers = {"rebate": ours, "nutcracker": proxy, "memcached": store}
        for run in bench.each_run():
            for side in turns(SIDES, run):
                store.ask("flush_all", end=b"OK\r\n")
                before_s = servers[side].cpu_s()
                requests, per_s = memcaslap(servers[side], 1024, seconds)
                saturated[side].append(per_s)
                cpu_us[side].append((servers[side].cpu_s() - before_s) / requests * 1e6)
            place(servers, own, cores - own)
            for side in turns(SIDES, run):
                with placed(cores - own):
                    paced["placed"][side].append(at_rate(store, servers[side], seconds))
            place(servers, cores, cores)
            for side in turns(SIDES, run):
                paced["free"][side].append(at_rate(store, servers[side], seconds))
    report(bench, saturated, cpu_us, paced)


def place(servers, proxies, rest):
    for side, server in servers.items():
        server.place(rest if side == "memcached" else proxies)


def at_rate(store, server, seconds):
    """Runs the load. Returns its report, and the times (s) that the server ran and waited for a core meanwhile."""
    store.ask("flush_all", end=b"OK\r\n")
    before = server.scheduled_s()
    found = load(server, "--rate", RATE_PER_S, "--arrivals", "uniform", "-c", 16,
                 "--value-size", "1KiB", "--payload", "random", "--get-share", 0.9,
                 "--warmup", f"{WARMUP_S}s", "-d", f"{seconds}s")
    return found, [after - first for after, first in zip(server.scheduled_s(), before)]


def report(bench, saturated, cpu_us, paced):
    for side in SIDES:
        bench.row(f"tps.{side}.1KiB.get90", f"{side}: saturated", saturated[side], "requests/s")
    bench.row("ratio.tps.rebate_over_nutcracker.1KiB.get90", "rebate over nutcracker: saturated",
              ratios(saturated["rebate"], saturated["nutcracker"]), "ratio", at_least=1.25)
    for side in SIDES:
        bench.row(f"cpu_per_request.{side}.1KiB.get90", f"{side}: own CPU, saturated", cpu_us[side],
                  "us/request")
    for where, sides in paced.items():
        paced_rows(bench, where, sides)
    bench.finish()


def paced_rows(bench, where, sides):
    point = f"10k_per_s.{where}"
    for op in ["get", "set"]:
        p50_us = {side: [us(found, op) for found, _ in sides[side]] for side in SIDES}
        for side in SIDES:
            bench.row(f"p50.{side}.1KiB.{op}.{point}", f"{where}, {side}: {op} p50 at 10,000/s",
                      p50_us[side], "us")
        bench.row(f"ratio.p50.rebate_over_nutcracker.1KiB.{op}.{point}",
                  f"{where}, rebate over nutcracker: {op} p50",
                  ratios(p50_us["rebate"], p50_us["nutcracker"]), "ratio", at_most=1)
    for side in SIDES:
        p99_us = [us(found, "get", which="p99_ns") for found, _ in sides[side]]
        bench.row(f"p99.{side}.1KiB.get.{point}", f"{where}, {side}: get p99 at 10,000/s", p99_us,
                  "us")
        for part, name in enumerate(["run", "wait"]):
            each_us = [times[part] / requests(found) * 1e6 for found, times in sides[side]]
            bench.row(f"{name}_per_request.{side}.1KiB.{point}",
                      f"{where}, {side}: {name} at 10,000/s", each_us, "us/request")


def requests(found):
    """Returns the number of all requests of a load: initial sets, warm-up and measured requests."""
    return found["prepopulate"]["stored"] + RATE_PER_S * (WARMUP_S + found["measured_s"])


if __name__ == "__main__":
    main()
