#!/usr/bin/env python3
"""Measures how well the other clients of a server are served while some clients misbehave.

A well-behaved load at a fixed rate (`rebate load`, 2,000 requests/s, 200 B or 100 kB values, 90 % gets) runs alone
and beside each attack, against a server with one worker thread. Criteria: no request fails. The p99 is at most three
times the p99 without the attack. The resident memory is at most the configured sum (`rebate_memory_max_bytes`) and a
tenth.
For comparison, memcached alone with one thread is attacked in the same way. On a machine with few cores the attacker,
the load and the server share the cores. To measure the cost of this, a second server of the same kind is attacked
while the load runs against the first.
- unread_gets: one connection asks for a value of 1 MB, 17 kB of requests per second, and reads nothing.
- read_gets: one connection pipelines the same requests and reads all answers.
- multi_gets: two connections ask for 64 such values in each line and read all answers.
- slow_writers: 70 connections begin values of 1 MB and send a byte every 0.4 s. The load's values have 100 kB.
- never_readers: 900 connections ask for a value that inflates from some hundred bytes to 1 MB, and read nothing.
- burst: 300 connections in each of three processes connect, and at the same moment each asks for a value of 1 MB that
  was never requested before, and reads it.
- burst_known: the same as burst, after 128 misses on each connection.
- burst_gone: 8 processes ask for 64 such values in one line, after 128 misses, and close the connection.
The last three attacks run only with --only, because 900 values of 1 MB need a memcached of 2 GiB.
"""

import itertools
import json
import multiprocessing
import random
import socket
import time

from harness import Bench, fail, memcached, ratios, rebate, start_load, us

LARGE = 1_000_000
MIB = 1 << 20


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(0.2)
    return connection


def unread_gets(port, stop):
    line = b"get large\r\n" * 16
    while not stop.is_set():
        with connect(port) as connection:
            try:
                while not stop.is_set():
                    connection.sendall(line)
                    time.sleep(0.01)
            except OSError:
                time.sleep(0.1)


def read_all(port, stop, line):
    sink = bytearray(1 << 20)
    while not stop.is_set():
        with connect(port) as connection:
            try:
                while not stop.is_set():
                    connection.sendall(line)
                    connection.recv_into(sink)
            except OSError:
                pass


def read_gets(port, stop):
    read_all(port, stop, b"get large\r\n")


def multi_gets(port, stop):
    read_all(port, stop, b"get" + b" large" * 64 + b"\r\n")


def many(port, stop, count, first, step_s):
    """Sends `first` on each of many connections, and then a byte every `step_s` seconds. Closed connections are
    opened again."""
    held = []
    while not stop.is_set():
        while len(held) < count and not stop.is_set():
            try:
                held.append(connect(port))
                held[-1].sendall(first(len(held)))
            except OSError:
                break
        time.sleep(step_s)
        for connection in list(held):
            try:
                connection.sendall(b"x")
            except OSError:
                held.remove(connection)
                connection.close()


def slow_writers(port, stop):
    many(port, stop, 70, lambda index: b"set slow_%d 0 0 %d\r\n" % (index, LARGE), 0.4)


def never_readers(port, stop):
    held = []
    for _ in range(900):
        held.append(connect(port))
    while not stop.is_set():
        for connection in list(held):
            try:
                connection.sendall(b"get inflates\r\n" * 4)
            except OSError:
                held.remove(connection)
        time.sleep(0.2)


def bursts(port, stop, keys, keys_per_line, misses, reads):
    """Asks for all `keys` at the same moment while the load is measured. Each line uses a separate connection."""
    lines = [b"get " + b" ".join(keys[at:at + keys_per_line]) + b"\r\n" for at in range(0, len(keys), keys_per_line)]
    due = time.monotonic() + BURST_AFTER_S
    sink = bytearray(1 << 20)
    held = []
    try:
        if not misses:
            stop.wait(due - time.monotonic())
        for _ in lines:
            held.append(connect(port))
            held[-1].settimeout(5)
            for _ in range(misses):
                held[-1].sendall(b"get missing\r\n")
                held[-1].recv_into(sink)
        stop.wait(max(0, due - time.monotonic()))
        for connection, line in zip(held, lines):
            connection.sendall(line)
        for connection in held if reads else []:
            left = LARGE
            while left > 0 and not stop.is_set():
                left -= connection.recv_into(sink) or left
    except OSError:
        pass
    for connection in held:
        connection.close()
    stop.wait()


def burst(port, stop, keys):
    bursts(port, stop, keys, 1, 0, True)


def burst_known(port, stop, keys):
    bursts(port, stop, keys, 1, 128, True)


def burst_gone(port, stop, keys):
    bursts(port, stop, keys[:64], 64, 128, False)


# The time of the burst (s). The load has warmed up by then, and is measured for at least another half second.
BURST_AFTER_S = 1.5
BURST_KEYS = 900
ATTACKS = [
    ("unread_gets", unread_gets, 1, "store", 200),
    ("read_gets", read_gets, 1, "store", 200),
    ("multi_gets", multi_gets, 2, "store", 200),
    ("slow_writers", slow_writers, 1, "embedded", 100_000),
    ("never_readers", never_readers, 1, "embedded", 200),
]
BURSTS = [
    ("burst", burst, 3, "store", 200),
    ("burst_known", burst_known, 3, "store", 200),
    ("burst_gone", burst_gone, 8, "store", 200),
]


def flags(parser):
    names = [name for name, *_ in ATTACKS + BURSTS]
    parser.add_argument("--only", nargs="+", choices=names, help="these attacks instead of all but the bursts")


def observe(server, value_bytes, seconds):
    """Runs the well-behaved load. Returns its p99 (us), its failed requests, and the server's highest resident
    memory (bytes)."""
    rate = 2_000 if value_bytes < 10_000 else 200
    running = start_load(server, "--rate", rate, "-c", 8, "--keys", 200, "--value-size", value_bytes,
                         "--get-share", 0.9, "--warmup", "1s", "-d", f"{seconds}s")
    peak = 0
    while running.poll() is None:
        peak = max(peak, server.rss_bytes())
        time.sleep(0.01)
    # `load_report` is not used here, because failed requests are a result and not an error.
    report = json.loads(running.communicate()[0])
    failed = sum(report["errors"].values()) + report["unanswered"] + report["unsent"]
    p99 = max(us(report, op, which="p99_ns") for op in ["get", "set"])
    return {"p99": p99, "failed": failed, "rss": peak}


def attacked(server, attack, processes, value_bytes, seconds, port=None, store=None):
    stop = multiprocessing.Event()
    shares = [(keys,) for keys in fresh_keys(store, processes)] if store else [()] * processes
    attackers = [multiprocessing.Process(target=attack, args=(port or server.port, stop, *share)) for share in shares]
    for attacker in attackers:
        attacker.start()
    try:
        return observe(server, value_bytes, seconds)
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join(5)
            attacker.kill()


def put(server, key, value):
    with server.connect() as connection:
        connection.sendall(b"set %s 0 0 %d\r\n" % (key, len(value)) + value + b"\r\n")
        if connection.recv(100) != b"STORED\r\n":
            fail(f"{key} was not stored")


generations = itertools.count()


def fresh_keys(store, processes):
    """Returns a share of 900 long values for each process. The values are put directly into memcached, under names
    that are used once, so no worker has seen them."""
    generation = next(generations)
    keys = [b"burst_%d_%d" % (generation, index) for index in range(BURST_KEYS)]
    value = random.Random(generation).randbytes(LARGE)
    with store.connect() as connection:
        for key in keys:
            connection.sendall(b"set %s 0 0 %d noreply\r\n" % (key, LARGE) + value + b"\r\n")
        connection.sendall(b"mn\r\n")
        if connection.recv(100) != b"MN\r\n":
            fail("the values of a burst were not stored")
    return [keys[index::processes] for index in range(processes)]


def main():
    bench = Bench("neighbours", __doc__, flags)
    only = bench.flags.only
    attacks = [attack for attack in ATTACKS + BURSTS if attack[0] in only] if only else ATTACKS
    has_bursts = any(attack in BURSTS for attack in attacks)
    memory = "2048" if has_bursts else "256"
    seconds = 1 if bench.quick else 6
    found = {name: [] for name, *_ in attacks}
    apart = {name: [] for name, *_ in attacks}
    rival = {name: [] for name, *_ in attacks}
    sums = []
    common = ["--threads", "1", "--admin-listen", "127.0.0.1:0"]
    with memcached("-m", memory) as store, memcached("-m", memory) as other, \
            rebate(*common, "--store", f"memcached://{store.address}") as behind, rebate(*common) as alone, \
            memcached("-m", memory) as twin_store, \
            rebate(*common, "--store", f"memcached://{twin_store.address}") as twin_behind, \
            rebate(*common) as twin_alone:
        servers = {"store": behind, "embedded": alone}
        twins = {"store": twin_behind, "embedded": twin_alone}
        for server in [behind, twin_behind]:
            put(server, b"large", random.Random(1).randbytes(LARGE))
        for server in [alone, twin_alone, other]:
            put(server, b"inflates", b"a" * (LARGE // 2) + b"b" * (LARGE // 2))
        put(other, b"large", random.Random(1).randbytes(LARGE))
        for _ in bench.each_run():
            for name, attack, processes, where, value_bytes in attacks:
                is_burst = attack in (burst, burst_known, burst_gone)
                for server, held_by, sides in [(servers[where], store, found[name]), (other, other, rival[name])]:
                    quiet = observe(server, value_bytes, seconds)
                    beside = attacked(server, attack, processes, value_bytes, seconds,
                                      store=held_by if is_burst else None)
                    sides.append((quiet, beside))
                    if server is not other:
                        elsewhere = attacked(server, attack, processes, value_bytes, seconds, twins[where].port,
                                             twin_store if is_burst else None)
                        apart[name].append((quiet, elsewhere))
        sums = {where: memory_max(server) for where, server in servers.items()}
    for name, _, _, where, value_bytes in attacks:
        rows(bench, name, value_bytes, found[name], sums[where])
        quiet, beside = ([side[which]["p99"] for side in apart[name]] for which in [0, 1])
        bench.row(f"ratio.p99.cores.{name}", f"{name}: the attack on another server of these cores, p99 beside over alone",
                  ratios(beside, quiet), "ratio")
        quiet, beside = ([side[which]["p99"] for side in rival[name]] for which in [0, 1])
        bench.row(f"ratio.p99.memcached.{name}", f"{name}: memcached alone, p99 beside over alone",
                  ratios(beside, quiet), "ratio")
        failed = [side["failed"] for _, side in rival[name]]
        bench.row(f"failed.memcached.{name}", f"{name}: memcached alone, failed requests", failed, "requests")
    bench.finish()


def memory_max(server):
    page = server.metrics()
    return sum(value for name, value in page.items() if name.startswith("rebate_memory_max_bytes"))


def rows(bench, name, value_bytes, found, memory_sum):
    about = f"{name}, others' values of {value_bytes} B"
    quiet, beside = ([side[which] for side in found] for which in [0, 1])
    bench.row(f"failed.{name}", f"{about}: failed requests", [side["failed"] for side in beside], "requests",
              at_most=0)
    p99 = {which: [side["p99"] for side in sides] for which, sides in [("quiet", quiet), ("beside", beside)]}
    bench.row(f"p99.quiet.{name}", f"{about}: p99 alone", p99["quiet"], "us")
    bench.row(f"p99.attacked.{name}", f"{about}: p99 beside the attack", p99["beside"], "us")
    bench.row(f"ratio.p99.{name}", f"{about}: p99 beside over alone", ratios(p99["beside"], p99["quiet"]), "ratio",
              at_most=3)
    bench.row(f"rss.{name}", f"{about}: highest resident memory", [side["rss"] / MIB for side in beside], "MiB",
              at_most=round(memory_sum * 1.1 / MIB, 1))


if __name__ == "__main__":
    main()
