#!/usr/bin/env python3
"""Which share of the gets hits in memcached and in `rebate memcached`, with equal memory and published workloads?

memcached, `rebate memcached` without compression and `rebate memcached` as it starts get the same `-m`, one thread and
the same requests: those of a published workload whose values are together eight times the memory. A miss is set. Sizes
and popularity are the published ones. The payload is not published, so each workload is measured with the payload of
its file and with records in JSON. While the load on memcached is measured, `rebate estimate` reads that memcached.

A gain is the hit ratio of Rebate less that of memcached. The estimated gain is from the miss-ratio curve of the
requests that memcached had. Criteria: Rebate never hits less often than memcached, and the estimate is within 1 point.
"""

import time
import tomllib

from harness import (ROOT, Bench, estimate_report, fail, load_report, memcached, rebate_memcached, start_estimate,
                     start_load)

MEMORY_MIB = 32
VALUES_OVER_MEMORY = 8
RATE_MAX = 20_000
BYTES_PER_S_MAX = 60e6
# After all keys were written once.
WARMUP_S = 20
MEASURED_S = 21
PRESETS = ["cachelib-cdn", "cachelib-follower-assocs", "cachelib-follower-fbobj", "cachelib-kvcache-reg",
           "cachelib-leader-assocs", "cachelib-leader-fbobj", "facebook-etc", "twitter-c12", "twitter-c37",
           "twitter-c4", "twitter-c53"]
# Where no mean is published.
MEAN_BYTES = 300
SIDES = {"memcached": (memcached, {}), "off": (rebate_memcached, {"REBATE_COMPRESS__MODE": "off"}),
         "on": (rebate_memcached, {})}


def main():
    bench = Bench("presets", __doc__, flags=add_flags, runs=1)
    presets = bench.flags.only or (["twitter-c12"] if bench.quick else PRESETS)
    if unknown := set(presets) - set(PRESETS):
        fail(f"--only {' '.join(unknown)}: the presets are {' '.join(PRESETS)}")
    found = {}
    for _ in bench.each_run():
        for preset in presets:
            file = tomllib.loads((ROOT / "specs" / "workloads" / f"{preset}.toml").read_text())
            payloads = {"published": file["payload"]["value"], "record-json": "record-json"}
            chosen = bench.flags.payload or ("record-json" if bench.quick else None)
            for payload in [payloads[chosen]] if chosen else payloads.values():
                hits, estimated = measured(preset, file, payload, bench)
                print(f"  {preset}, {payload}: {hits}, estimated gain {estimated}", flush=True)
                found.setdefault((preset, payload), []).append((hits, estimated))
    for (preset, payload), values in found.items():
        add_rows(bench, f"{preset}.{payload}", f"{preset}, {payload}", values)
    bench.finish()


def add_flags(parser):
    parser.add_argument("--only", nargs="+", metavar="PRESET", help="measure these workloads only")
    parser.add_argument("--payload", choices=["published", "record-json"],
                        help="measure with the payload of the workload's file, or with records, only")


def add_rows(bench, row, what, values):
    for side in SIDES:
        bench.row(f"hit_ratio.{side}.{row}", f"{what}: hit ratio, {side}", [hits[side] for hits, _ in values], "share")
    gains = [hits["on"] - hits["memcached"] for hits, _ in values]
    bench.row(f"gain.{row}", f"{what}: gain over memcached", gains, "share", at_least=0)
    bench.row(f"gain.over_off.{row}", f"{what}: gain over compression off",
              [hits["on"] - hits["off"] for hits, _ in values], "share",
              at_least=0.1 if row == "cachelib-kvcache-reg.record-json" else None)
    bench.row(f"gain.estimated.{row}", f"{what}: estimated gain", [estimated for _, estimated in values], "share")
    errors = [abs(gain - estimated) for gain, (_, estimated) in zip(gains, values)]
    bench.row(f"error.gain.{row}", f"{what}: error of the estimate", errors, "share", at_most=0.01)


def measured(preset, file, payload, bench):
    """Returns the hit ratio of each side, and the estimated gain."""
    memory_mib = 8 if bench.quick else MEMORY_MIB
    mean = file.get("mean_value_bytes", {}).get("value", MEAN_BYTES)
    keys = int(VALUES_OVER_MEMORY * (memory_mib << 20) / mean)
    warmup_s, measured_s = (1, 2) if bench.quick else (WARMUP_S, MEASURED_S)
    load = ["--preset", preset, "--payload", payload, "--keys", keys, "--versions", 1, "-c", 4, "--set-on-miss",
            "--arrivals", "uniform", "--rate", int(min(RATE_MAX, BYTES_PER_S_MAX / mean))]
    hits = {}
    for side, (start, env) in SIDES.items():
        memory = ("-m", str(memory_mib))
        with start(*memory, env=env) if env else start(*memory) as server:
            load_report(start_load(server, *load, "--warmup", "0s", "-d", "1s"))
            # One run, because each begins with the same requests. In two, those of the first would come again.
            running = start_load(server, *load, "--no-prepopulate", "--warmup", f"{warmup_s}s", "-d", f"{measured_s}s")
            if side == "memcached":
                time.sleep(warmup_s)
                estimated = estimate_report(start_estimate(server, "--seconds", measured_s - 1, "--rate", RATE_MAX))
            report = load_report(running)["get"]
        hits[side] = report["hits"] / (report["hits"] + report["misses"])
    return hits, estimated["total"]["hit_ratio_gain"]["value"]


if __name__ == "__main__":
    main()
