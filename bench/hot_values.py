#!/usr/bin/env python3
"""What do hot values save, which are kept decompressed?

Two `rebate memcached` with one thread and 64 MiB get the same load in turns: HTML of 4 KiB or 64 KiB, keys of a Zipf
distribution with exponent 0.99, whose values together take eight times the memory before compression, 90 % gets,
and a miss is set. One server keeps hot values in 5 % of its memory (the default), the other one none.

A load sends eight requests at once on each of four connections. Its requests never repeat: popular values become known
in the first seconds, and the hit ratio is that of the rest. A load of gets alone follows, whose misses are not set: the
CPU time of the server without its trainer, by the gets, is what a get takes. The latency is that of a load at a fixed
rate. Criteria: a get takes at most 0.6 of the CPU time that it takes without hot values, the hit ratio is at most half a
point lower, and the p99 of gets at most 1.05 times as long. The breakdown: the share of hits that hot values answer, and
what a get takes if they answer all of them (20 keys), over one that decompresses. With an ideal choice of values a get
would thus take 1 - ideal share x (1 - that ratio).
"""

import time

from harness import Bench, load_report, ratios, rebate_memcached, start_load, turns, us

HOT_SHARE = 0.05
SIDES = {"without": "0", "with": str(HOT_SHARE)}
EXPONENT = 0.99
MEMORY_MIB = 64
QUICK_MEMORY_MIB = 2
# The values of a size, and the requests per second of the load at a fixed rate.
SIZES = {"4KiB": (4 << 10, 4_000), "64KiB": (64 << 10, 1_000)}
VALUES_OVER_MEMORY = 8
GET_SHARE = 0.9
IN_FLIGHT = ["--in-flight", 8]
WARMUP_S = 8
MEASURED_S = 6
SAMPLE_S = 0.25
FIELDS = ["get_us", "hit_ratio", "p99_us", "hot_share", "hot_share_alone", "get_20_keys_us"]


def main():
    bench = Bench("hot_values", __doc__)
    memory_mib = QUICK_MEMORY_MIB if bench.quick else MEMORY_MIB
    for size, (value_bytes, rate) in SIZES.items():
        keys = VALUES_OVER_MEMORY * (memory_mib << 20) // value_bytes
        found = {side: {name: [] for name in FIELDS} for side in SIDES}
        for run in bench.each_run():
            for side in turns(list(SIDES), run):
                with rebate_memcached("-m", str(memory_mib), env={"REBATE_VALUES__HOT_SHARE": SIDES[side]}) as server:
                    measure(server, keys, value_bytes, rate, bench.quick, found[side])
                print(f"  {size}, {side}: { {name: round(values[-1], 3) for name, values in found[side].items()} }",
                      flush=True)
        fit = int(HOT_SHARE * (memory_mib << 20) / value_bytes)
        report(bench, size, found, popular(fit) / popular(keys))
    bench.finish()


def popular(count):
    """Returns the weight of the most popular keys."""
    return sum(rank ** -EXPONENT for rank in range(1, count + 1))


def measure(server, keys, value_bytes, rate, quick, found):
    warmup_s, seconds = (1, 2) if quick else (WARMUP_S, MEASURED_S)
    mixed = start_load_of(server, keys, value_bytes, GET_SHARE, seconds, "--warmup", f"{warmup_s}s",
                          "--set-on-miss", *IN_FLIGHT)
    used = watch(server, mixed, seconds)
    found["hit_ratio"].append(load_report(mixed)["get"]["hit_ratio"])
    found["hot_share"].append(used["read_hot"] / used["get_hits"])
    gets = used_by_load(server, keys, value_bytes, 1, seconds / 2, "--no-prepopulate", *IN_FLIGHT)
    found["get_us"].append(gets["cpu_us"] / gets["get_hits"])
    found["hot_share_alone"].append(gets["read_hot"] / gets["get_hits"])
    paced = start_load_of(server, keys, value_bytes, GET_SHARE, seconds / 2, "--no-prepopulate", "--rate", rate,
                          "--set-on-miss")
    found["p99_us"].append(us(load_report(paced), which="p99_ns"))
    few = used_by_load(server, 20, value_bytes, 1, seconds / 4, *IN_FLIGHT)
    found["get_20_keys_us"].append(few["cpu_us"] / few["get_hits"])


def used_by_load(server, *arguments):
    before = sample(server)
    load_report(start_load_of(server, *arguments))
    after = sample(server)
    return {name: after[name] - before[name] for name in after}


def watch(server, load, seconds):
    """Returns what the server did in most of the last `seconds` of a load, which runs on."""
    samples = [sample(server)]
    while load.poll() is None:
        time.sleep(SAMPLE_S)
        samples.append(sample(server))
    last = max(len(samples) - 3, 1)
    first = max(last - int(seconds / SAMPLE_S) + 2, 0)
    return {name: samples[last][name] - samples[first][name] for name in samples[0]}


def sample(server):
    stats = server.stats()
    own = dict(line.split()[1:3] for line in server.ask("stats rebate"))
    cpu_us = server.scheduled_s(besides="rebate-trainer")[0] * 1e6
    return {"cpu_us": cpu_us, "read_hot": int(own["read_hot"]), "get_hits": int(stats["get_hits"])}


def report(bench, size, found, ideal_share):
    names = {"get_us": ("CPU of a get", "us"), "hit_ratio": ("hit ratio", "share"),
             "p99_us": ("p99 of gets", "us"), "hot_share": ("hits answered by hot values", "share"),
             "hot_share_alone": ("the same, gets alone", "share"),
             "get_20_keys_us": ("CPU of a get of 20 keys", "us")}
    for side, values in found.items():
        for name, (what, unit) in names.items():
            bench.row(f"{name}.{side}.{size}", f"{what}, {side} hot values, {size}", values[name], unit)
    hot, cold = found["with"], found["without"]
    bench.row(f"ratio.cpu.{size}", f"CPU of a get, with over without, {size}", ratios(hot["get_us"], cold["get_us"]),
              "ratio", at_most=0.6)
    bench.row(f"ratio.cpu_of_hot.{size}", f"CPU of a get of 20 keys, with over without, {size}",
              ratios(hot["get_20_keys_us"], cold["get_20_keys_us"]), "ratio")
    bench.row(f"ideal_share.{size}", f"gets of the values that fit, if the most popular ones are kept, {size}",
              [ideal_share], "share")
    bench.row(f"hit_ratio.change.{size}", f"hit ratio, with less without, {size}",
              [one - other for one, other in zip(hot["hit_ratio"], cold["hit_ratio"])], "share", at_least=-0.005)
    bench.row(f"ratio.p99.{size}", f"p99 of gets, with over without, {size}", ratios(hot["p99_us"], cold["p99_us"]),
              "ratio", at_most=1.05)


def start_load_of(server, keys, value_bytes, get_share, seconds, *flags):
    return start_load(server, "-c", 4, "--zipf", EXPONENT, "--keys", keys, "--value-size", value_bytes, "--payload", "html",
                      "--get-share", get_share, "--versions", 1, "-d", f"{int(seconds * 1000)}ms",
                      *flags)


if __name__ == "__main__":
    main()
