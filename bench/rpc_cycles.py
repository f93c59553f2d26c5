#!/usr/bin/env python3
"""Measures where the CPU time of a request goes: network, RPC layer and business logic, for ours and stock Thrift.

This is the question of [Arcalis] (figure 6) on its workloads memc_low, memc_mid and memc_high, with SET ratios of 20,
50 and 80 %. Requests go over TCP on loopback. The sides take turns, and `rebate rpc load` compares each answer byte
for byte:
- ours: `rebate rpc serve --layout inline`, with one thread.
- stock: bench/rivals/thrift/memcached.cpp, C++ Thrift's TThreadedServer with a thread for each connection.
Each server runs on one core and reports where the time of its threads went. The load runs on another core if there is
one. The load has one connection, so the stock server has one thread. This matters because the times in rpc and handler
are elapsed times: if several threads shared a core, each would count the others' time as its own. The network's time
is the CPU time of the threads minus these two times.
For both sides the network is the kernel's sockets. Neither side bypasses the kernel, unlike the second half of the
paper.
Needs Debian's libthrift-dev, libboost-dev and thrift-compiler.
"""

import json
import os
import re
import signal
import subprocess

import _thrift
from harness import BINARY, Bench, Server, fail, listening_port, placed, ratios

WORKLOADS = {"memc_low": 20, "memc_mid": 50, "memc_high": 80}
STAGES = ["network", "rpc", "handler"]
LINE = re.compile(r"stages of (\d+) requests: network (\S+) ns, rpc (\S+) ns, "
                  r"handler (\S+) ns a request")


def main():
    bench = Bench("rpc_cycles", __doc__)
    stock = _thrift.cpp("memcached", bench.quick)
    commands = {
        "ours": [BINARY, "rpc", "serve", "--service", "memcached", "--listen", "127.0.0.1:0",
                 "--layout", "inline", "--time-stages"],
        "stock": [stock],
    }
    cores = sorted(os.sched_getaffinity(0))
    workloads = list(WORKLOADS)[:1] if bench.quick else list(WORKLOADS)
    found = {}
    for run in bench.each_run():
        for workload in workloads:
            for side in sorted(commands, reverse=run % 2 == 1):
                asked = measured(commands[side], workload, cores, "200ms" if bench.quick else "4s")
                for name, value in asked.items():
                    found.setdefault((workload, side, name), []).append(value)
    report(bench, workloads, found)


def measured(command, workload, cores, duration):
    """Returns where the time of a server's requests went (ns), and the number of requests per second."""
    with placed({cores[0]}):
        server = Server(command, listening_port)
    with server, placed({cores[-1]}):
        load = [BINARY, "rpc", "load", server.address, "--workload", workload,
                "-c", "1", "-d", duration, "--json"]
        ran = subprocess.run(load, capture_output=True, text=True)
        if ran.returncode:
            fail(f"{' '.join(map(str, load))}\n{ran.stderr}{ran.stdout}")
        server.child.send_signal(signal.SIGTERM)
        server.child.wait()
        said = LINE.search(server.log.read_text())
        if not said:
            fail(f"{server.words} did not say where its time went\n{server.log.read_text()}")
        stages = {name: float(value) for name, value in zip(STAGES, said.groups()[1:])}
        return {**stages, "per_s": json.loads(ran.stdout)["requests_per_second"]}


def report(bench, workloads, found):
    for workload in workloads:
        what = f"SET {WORKLOADS[workload]} %"
        for side in ["ours", "stock"]:
            of = {name: found[workload, side, name] for name in STAGES}
            whole = [sum(stages) for stages in zip(*of.values())]
            for name in STAGES:
                words, share = f"{what}, {side}: {name}", ratios(of[name], whole)
                bench.row(f"cpu.{workload}.{side}.{name}", words, of[name], "ns")
                bench.row(f"share.{workload}.{side}.{name}", words, [100 * s for s in share], "%")
            bench.row(f"cpu.{workload}.{side}", f"{what}, {side}: a request's CPU time",
                      whole, "ns")
            bench.row(f"throughput.{workload}.{side}", f"{what}, {side}: requests, closed loop",
                      found[workload, side, "per_s"], "1/s")
        both = [found[workload, side, "rpc"] for side in ["stock", "ours"]]
        bench.row(f"rpc_over_ours.{workload}", f"{what}: stock's RPC layer over ours",
                  ratios(*both), "times")
    bench.finish()


if __name__ == "__main__":
    main()
