#!/usr/bin/env python3
"""What does it save to compress and encrypt a value in one trip to a service, instead of two?

A frontend on one core keeps sealed values (`path = ["compress", "encrypt"]`) in its own store, and sends every
compression and cipher to a service on another core, whose device is an emulated QAT (`virtual-qat-4xxx`): over a lane and
over gRPC (a Unix socket), with the op that follows in the same trip and in a trip of its own (`runtime.chains`). The
emulation computes in software and takes as long as the published device, so the service's processor time is that of
software. Values have 4 and 64 KiB of html. One connection sets, and then gets, 500 times per second.

- work: the mean time of a value's jobs, from the submission of the first one until the last one is back.
- p50: the median that the client sees, with its socket and the frontend's session.
- cpu: processor time of frontend and service per request.
Criteria: one trip over two trips is at most 0.65 of the work's time, and at most 0.7 of the processor time.
The sides take turns within a run, and each run begins with another side.
"""

import os
import pathlib
import tempfile
from contextlib import ExitStack

from harness import (Bench, compression_service, html_pages, load, placed, ratios, rebate, sealing_keys, turns,
                     us, written)

SIZES = {"4KiB": 4 << 10, "64KiB": 64 << 10}
TRANSPORTS = {"lane": "lane:", "grpc": "unix:"}
TRIPS = {"one": "true", "two": "false"}
KEYS = 200
RATE = 500


def main():
    bench = Bench("sealed_trips", __doc__)
    pages, source = html_pages(None, 8 if bench.quick else 100)
    print(f"values: 4 and 64 KiB, cut from {source}")
    corpus = written("pages", pages)
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keys = sealing_keys(folder)
        with placed(cores[-1:]):
            service = stack.enter_context(started_service(folder, keys))
        sides = {}
        with placed(cores[:1]):
            for transport, prefix in TRANSPORTS.items():
                for trips, chains in TRIPS.items():
                    address = f"{prefix}{folder / transport}"
                    sides[transport, trips] = stack.enter_context(frontend(keys, address, chains))
        found = {}
        for run in bench.each_run():
            for side in turns(list(sides), run):
                for size in SIZES:
                    for op in ("set", "get"):
                        values = spent(bench, sides[side], service, (op, size, corpus))
                        found.setdefault((*side, size, op), []).append(values)
    report(bench, found)


def started_service(folder, keys):
    settings = {"runtime.offload_bytes_min": "0", "runtime.verify_every": "0", "values.keys": keys,
                "server.ciphers": "true"}
    sockets = {kind: folder / kind for kind in TRANSPORTS}
    return compression_service(sockets, "--device", "virtual-qat-4xxx", "--allow-virtual", "--policy",
                               "bounded-offload", "--threads", "1", "--workers", "0", *flags(settings))


def flags(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def frontend(keys, address, chains):
    settings = {"values.keys": keys, "values.path": "compress,encrypt", "runtime.compression_ciphers": "true",
                "runtime.chains": chains, "runtime.offload_bytes_min": "0", "runtime.verify_every": "0"}
    return rebate("--compress", "on", "--codec", "deflate", "--store", "embedded", "--memory", "256MiB",
                  "--threads", "1", "--workers", "0", "--set", "values.hot_share=0", "--admin-listen", "127.0.0.1:0",
                  "--policy", "bounded-offload", "--compression", address, *flags(settings))


def spent(bench, server, service, wanted):
    """Returns the time of a value's jobs (us), the p50 that the client sees (us), the processor time of a request (us), and
    the share of its ops that the service ran."""
    op, size, corpus = wanted
    arguments = ["-c", 1, "--rate", RATE, "--arrivals", "uniform", "--keys", KEYS, "--zipf", 0, "--value-size", size,
                 "--corpus", corpus, "--get-share", 1 if op == "get" else 0]
    with placed(sorted(os.sched_getaffinity(0))[:1]):
        return measured(bench, server, service, (op, arguments))


def measured(bench, server, service, wanted):
    op, arguments = wanted
    load(server, *arguments, "-d", "1s")
    ran_s = lambda: server.scheduled_s()[0] + service.scheduled_s()[0]
    before, cpu_s = server.metrics(), ran_s()
    seconds = 1 if bench.quick else 4
    result = load(server, *arguments, "--no-prepopulate", "-d", f"{seconds}s")
    after, cpu_s = server.metrics(), ran_s() - cpu_s
    count = result[op]["answered"]

    def grown(beginning, *labels):
        names = [name for name in after
                 if name.startswith(beginning) and all(label in name for label in labels)]
        return sum(after[name] - before.get(name, 0) for name in names)

    jobs = grown("rebate_jobs_total", 'outcome="done"')
    away = jobs - grown("rebate_jobs_total", 'outcome="done"', 'device="software"')
    return {"work": grown("rebate_job_seconds_total") / count * 1e6, "p50": us(result, op),
            "cpu": cpu_s / count * 1e6, "share": away / jobs}


def report(bench, found):
    for transport in TRANSPORTS:
        for size in SIZES:
            for op in ("set", "get"):
                sides = {trips: found[transport, trips, size, op] for trips in TRIPS}
                name = f"{transport}.{size}.{op}"
                for trips, runs in sides.items():
                    for part, unit in (("work", "us"), ("p50", "us"), ("cpu", "us"), ("share", "1")):
                        bench.row(f"{part}.{name}.{trips}", f"{transport}, {size}, {op}: {trips} trip(s), {part}",
                                  [run[part] for run in runs], unit)
                for part, bar in (("work", 0.65), ("p50", None), ("cpu", 0.7)):
                    both = [[run[part] for run in sides[trips]] for trips in ("one", "two")]
                    bench.row(f"{part}.{name}.one_over_two", f"{transport}, {size}, {op}: one over two, {part}",
                              ratios(*both), "1", at_most=bar)
    bench.finish()


if __name__ == "__main__":
    main()
