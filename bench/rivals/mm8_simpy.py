#!/usr/bin/env python3
"""Runs SimPy on the M/M/8 queue of sim/benches/events.rs, with one process per customer and a Resource, as its
documentation teaches. The events are the arrivals and the departures. Needs `pip install simpy`. Prints one row of
JSON.
"""

import json
import random
import statistics
import time

import simpy

SERVERS, LOAD, WAIT = 8, 0.8, 0.2860
CUSTOMERS, RUNS = 200_000, 5


def main():
    rates = sorted(rate(seed) for seed in range(RUNS))
    print(json.dumps({
        "id": "events_per_second.simpy.mm8", "value": statistics.median(rates), "low": rates[0],
        "high": rates[-1], "unit": "1/s", "runs": RUNS, "bar": None, "version": simpy.__version__}))


def rate(seed):
    prng, env, waits = random.Random(seed), simpy.Environment(), []
    servers = simpy.Resource(env, capacity=SERVERS)

    def customer():
        came = env.now
        with servers.request() as request:
            yield request
            waits.append(env.now - came)
            yield env.timeout(prng.expovariate(1.0))

    def source():
        for _ in range(CUSTOMERS):
            yield env.timeout(prng.expovariate(SERVERS * LOAD))
            env.process(customer())

    env.process(source())
    start = time.perf_counter()
    env.run()
    elapsed_s = time.perf_counter() - start
    wait = statistics.fmean(waits)
    assert abs(wait / WAIT - 1) < 0.15, f"a mean wait of {wait} service times, not {WAIT}"
    return 2 * CUSTOMERS / elapsed_s


main()
