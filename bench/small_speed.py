#!/usr/bin/env python3
"""Is `rebate memcached` as fast as memcached with small values, and what does compression cost?

Three servers have one thread and 1 GiB each: memcached, `rebate memcached` with compression off, and with compression
and dictionaries, which is its default. Values have 200 B and 1 KiB, and 90 % of the requests are gets.
- Saturation: memcaslap with 1 thread and 16 connections. Its values are random text, of which compression saves about
  a quarter. Criteria: the requests per second without compression over those of memcached are at least 1, and with
  compression over without at least 0.9.
- Fixed rate: `rebate load` with 10,000 requests/s, uniform gaps, 4 connections and JSON records or text. Criterion: at
  200 B, compression adds at most 5 us to the p50 of gets, and at most 15 us to that of sets.
The sides take turns within a run, and each run begins with another side. Before the first run, both loads run until the
server has decided whether their values have a dictionary.
"""

import time
from contextlib import ExitStack

from harness import (PATIENCE_S, Bench, load, memcached, memcaslap, ratios, rebate_memcached,
                     turns, us)

SIZES = {"200B": 200, "1KiB": 1024}
PAYLOADS = {"200B": "record-json", "1KiB": "json"}
SIDES = ["memcached", "off", "on"]
NAMES = {"memcached": "memcached", "off": "rebate, compression off", "on": "rebate, compression on"}
MEMORY = ["-m", "1024"]
RATE_PER_S = 10_000
MARGIN_US = {"get": 5, "set": 15}


def main():
    bench = Bench("small_speed", __doc__)
    seconds = 1 if bench.quick else 4
    for size in SIZES:
        with ExitStack() as stack:
            servers = {"memcached": memcached(*MEMORY),
                       "off": rebate_memcached(*MEMORY, env={"REBATE_COMPRESS__MODE": "off"}),
                       "on": rebate_memcached(*MEMORY)}
            for server in servers.values():
                stack.enter_context(server)
            measure(bench, size, servers, seconds)
    bench.finish()


def measure(bench, size, servers, seconds):
    per_s = {side: [] for side in SIDES}
    cpu_us = {side: [] for side in SIDES}
    paced = {side: [] for side in SIDES}
    if not bench.quick:
        await_forms(servers["on"], size)
    for run in bench.each_run():
        for side in turns(SIDES, run):
            servers[side].ask("flush_all", end=b"OK\r\n")
            before_s = servers[side].cpu_s()
            requests, rate = memcaslap(servers[side], SIZES[size], seconds)
            per_s[side].append(rate)
            cpu_us[side].append((servers[side].cpu_s() - before_s) / requests * 1e6)
        for side in turns(SIDES, run):
            paced[side].append(at_rate(servers[side], size, max(1, seconds - 1)))
    report(bench, size, per_s, cpu_us, paced)


def await_forms(server, size):
    """Runs both loads until every class with many values has a form, and prints the forms."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        memcaslap(server, SIZES[size], 1)
        at_rate(server, size, 1)
        stats = [line.split()[1:] for line in server.ask("stats dictionaries")]
        written = {name.rpartition(":")[0]: int(value) for name, value in stats
                   if name.endswith(":values_written")}
        forms = {name.rpartition(":")[0]: form for name, form in stats if name.endswith(":form")}
        if all(forms[name] != "undecided" for name, values in written.items() if values > 1_000):
            break
    print(f"{size}: " + ", ".join(f"{name} {forms[name]} ({values} values)"
                                  for name, values in list(written.items())[:4]), flush=True)


def at_rate(server, size, seconds):
    return load(server, "--rate", RATE_PER_S, "--arrivals", "uniform", "-c", 4, "--get-share", 0.9,
                "--value-size", SIZES[size], "--payload", PAYLOADS[size], "-d", f"{seconds}s")


def report(bench, size, per_s, cpu_us, paced):
    for side in SIDES:
        bench.row(f"tps.{side}.{size}.get90", f"{size}, {NAMES[side]}: saturated", per_s[side],
                  "requests/s")
    bench.row(f"ratio.tps.off_over_memcached.{size}.get90", f"{size}, off over memcached: saturated",
              ratios(per_s["off"], per_s["memcached"]), "ratio", at_least=1)
    bench.row(f"ratio.tps.on_over_off.{size}.get90", f"{size}, on over off: saturated",
              ratios(per_s["on"], per_s["off"]), "ratio", at_least=0.9)
    for side in SIDES:
        bench.row(f"cpu_per_request.{side}.{size}.get90", f"{size}, {NAMES[side]}: CPU, saturated",
                  cpu_us[side], "us/request")
    for op, margin_us in MARGIN_US.items():
        p50_us = {side: [us(found, op) for found in paced[side]] for side in SIDES}
        for side in SIDES:
            bench.row(f"p50.{side}.{size}.{op}", f"{size}, {NAMES[side]}: {op} p50 at 10,000/s",
                      p50_us[side], "us")
        added_us = [on - off for on, off in zip(p50_us["on"], p50_us["off"])]
        bench.row(f"added.p50.{size}.{op}", f"{size}, on minus off: {op} p50", added_us, "us",
                  at_most=margin_us if size == "200B" else None)


if __name__ == "__main__":
    main()
