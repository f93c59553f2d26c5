#!/usr/bin/env python3
"""What do hot values save, which are kept decompressed?

Two `rebate memcached` with one thread and 64 MiB get the same load: HTML of 4 KiB or 64 KiB, keys of a Zipf
distribution with exponent 0.99, whose values together take eight times the memory before compression, 90 % gets,
and a miss is set. One server keeps hot values in 5 % of its memory (the default), the other one none.

The CPU time of the server, without that of its trainer, is that of a load with eight requests in flight on each of
four connections. What a set takes is measured with a load of sets alone, and the rest is that of the gets. The
latency is that of a fixed rate. Criteria: a get takes at most 0.6 of the CPU time that it takes without hot values,
the hit ratio is at most half a point lower, and the p99 of gets at most 1.05 times as long.
"""

from contextlib import ExitStack

from harness import Bench, load_report, ratios, rebate_memcached, start_load, turns, us

SIDES = {"without": "0", "with": "0.05"}
MEMORY_MIB = 64
QUICK_MEMORY_MIB = 2
# The values of a size, and the requests per second of the load at a fixed rate.
SIZES = {"4KiB": (4 << 10, 4_000), "64KiB": (64 << 10, 1_000)}
VALUES_OVER_MEMORY = 8
GET_SHARE = 0.9
IN_FLIGHT = ["--in-flight", 8]


def main():
    bench = Bench("hot_values", __doc__)
    memory_mib = QUICK_MEMORY_MIB if bench.quick else MEMORY_MIB
    for size, (value_bytes, rate) in SIZES.items():
        keys = VALUES_OVER_MEMORY * (memory_mib << 20) // value_bytes
        found = {side: {name: [] for name in ("get_us", "set_us", "hit_ratio", "p99_us")} for side in SIDES}
        with ExitStack() as stack:
            servers = {}
            for side, share in SIDES.items():
                server = rebate_memcached("-m", str(memory_mib), env={"REBATE_VALUES__HOT_SHARE": share})
                servers[side] = stack.enter_context(server)
                # Popular values are known, and the dictionaries are chosen, before anything counts.
                load(servers[side], keys, value_bytes, GET_SHARE, 1 if bench.quick else 10, *IN_FLIGHT)
            for run in bench.each_run():
                for side in turns(list(SIDES), run):
                    measure(servers[side], keys, value_bytes, rate, 1 if bench.quick else 6, found[side])
        report(bench, size, found)
    bench.finish()


def measure(server, keys, value_bytes, rate, seconds, found):
    sets, sets_us = cpu_us(server, keys, value_bytes, 0, seconds / 4)
    set_us = sets_us / sets["set"]["answered"]
    mixed, took_us = cpu_us(server, keys, value_bytes, GET_SHARE, seconds)
    written = mixed["set"]["answered"] + mixed["fill"]["answered"]
    found["set_us"].append(set_us)
    found["get_us"].append((took_us - set_us * written) / mixed["get"]["answered"])
    found["hit_ratio"].append(mixed["get"]["hit_ratio"])
    paced = load(server, keys, value_bytes, GET_SHARE, seconds / 2, "--no-prepopulate", "--rate", rate)
    found["p99_us"].append(us(paced, which="p99_ns"))


def report(bench, size, found):
    names = {"get_us": ("CPU of a get", "us"), "set_us": ("CPU of a set", "us"), "hit_ratio": ("hit ratio", "share"),
             "p99_us": ("p99 of gets", "us")}
    for side, values in found.items():
        for name, (what, unit) in names.items():
            bench.row(f"{name}.{side}.{size}", f"{what}, {side} hot values, {size}", values[name], unit)
    hot, cold = found["with"], found["without"]
    bench.row(f"ratio.cpu.{size}", f"CPU of a get, with over without, {size}", ratios(hot["get_us"], cold["get_us"]),
              "ratio", at_most=0.6)
    bench.row(f"hit_ratio.change.{size}", f"hit ratio, with less without, {size}",
              [one - other for one, other in zip(hot["hit_ratio"], cold["hit_ratio"])], "share", at_least=-0.005)
    bench.row(f"ratio.p99.{size}", f"p99 of gets, with over without, {size}", ratios(hot["p99_us"], cold["p99_us"]),
              "ratio", at_most=1.05)


def cpu_us(server, keys, value_bytes, get_share, seconds):
    """Returns the report of a load, and the CPU time of the server meanwhile (us)."""
    before_s, _ = server.scheduled_s(besides="rebate-trainer")
    found = load(server, keys, value_bytes, get_share, seconds, "--no-prepopulate", "--warmup", "0s", *IN_FLIGHT)
    return found, (server.scheduled_s(besides="rebate-trainer")[0] - before_s) * 1e6


def load(server, keys, value_bytes, get_share, seconds, *flags):
    return load_report(start_load(server, "-c", 4, "--zipf", 0.99, "--keys", keys, "--value-size", value_bytes,
                                  "--payload", "html", "--get-share", get_share, "--set-on-miss", "--versions", 1,
                                  "-d", f"{int(seconds * 1000)}ms", *flags))


if __name__ == "__main__":
    main()
