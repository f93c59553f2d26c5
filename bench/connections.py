#!/usr/bin/env python3
"""Measures idle connections: how many can be held, how much memory one takes, and how much remains after they close.

Each run starts a new `rebate serve` with the embedded store and opens 10,000 idle connections (`--connections`):
1. The baseline is the resident memory after the start and a short load on other connections.
2. All connections are open and unused. The growth per connection is measured (criterion: at most 64 KiB).
3. Each connection did one 64 KiB set and get on a key of a small set and is idle again. The growth per connection is
   measured again (same criterion).
4. Other connections send 100 requests/s while these are idle. All requests must be answered, and the p99 is reported.
5. All connections are closed. The remaining growth is measured, and the growth that a second round of opening, using
   and closing adds to it.
Resident memory is VmRSS after it has settled.
"""

import resource
import time

from harness import PAGE_BYTES, PATIENCE_S, Bench, fail, html_pages, load, rebate, us

SPARE_FILES = 200
KEYS = 64
ACTIVE_CONNECTIONS = 8


def main():
    bench = Bench("connections", __doc__, flags=lambda parser: parser.add_argument(
        "--connections", type=int, metavar="N",
        help="idle connections (default: 10000; quick: 200)"))
    count = bench.flags.connections or (200 if bench.quick else 10_000)
    raise_file_limit(count + SPARE_FILES)
    pages, source = html_pages(None, KEYS)
    print(f"{count} connections; values: {KEYS} of 64 KiB, {source}")
    found = {name: [] for name in ["unused", "used", "closed", "again", "p99", "answered"]}
    for _ in bench.each_run():
        with rebate("--set", f"server.connections_max={count + SPARE_FILES}") as server:
            one_run(bench, server, count, pages, found)
    report(bench, found, count)


def one_run(bench, server, count, pages, found):
    active(bench, server)
    baseline = settled_rss(server)
    connections = opened(server, count)
    found["unused"].append((settled_rss(server) - baseline) / count / 1024)
    use_all(connections, pages)
    found["used"].append((settled_rss(server) - baseline) / count / 1024)
    busy = active(bench, server)
    found["p99"].append(us(busy, which="p99_ns"))
    found["answered"].append(busy["get"]["answered"] + busy["set"]["answered"])
    close(server, connections)
    after = settled_rss(server)
    found["closed"].append((after - baseline) / (1 << 20))
    connections = opened(server, count)
    use_all(connections, pages)
    close(server, connections)
    found["again"].append((settled_rss(server) - after) / (1 << 20))


def report(bench, found, count):
    bench.row("connections.held", "idle connections held", [count], "connections",
              at_least=None if bench.quick else 10_000)
    bench.row("rss_per_connection.unused", "memory of a connection never used", found["unused"],
              "KiB", at_most=64)
    bench.row("rss_per_connection.used_once",
              "memory of a connection used once, 64 KiB set and get", found["used"], "KiB",
              at_most=64)
    bench.row("answered.beside_idle", "requests answered beside them, none failed",
              found["answered"], "requests")
    bench.row("p99.beside_idle.4KiB.get.100_per_s", "get p99 beside them at 100/s", found["p99"],
              "us")
    bench.row("rss_growth.closed", "growth that remains when all are closed", found["closed"],
              "MiB")
    bench.row("rss_growth.closed_again", "growth by a second round", found["again"], "MiB")
    bench.finish()


def active(bench, server):
    """Sends 100 requests/s on other connections. A failed request ends the benchmark."""
    return load(server, "--rate", 100, "-c", ACTIVE_CONNECTIONS, "--keys", 100,
                "--value-size", "4KiB", "-d", "1s" if bench.quick else "5s")


def opened(server, count):
    connections = [server.connect() for _ in range(count)]
    await_connections(server, count)
    return connections


def close(server, connections):
    for connection in connections:
        connection.close()
    await_connections(server, 0)


def use_all(connections, pages):
    for number, connection in enumerate(connections):
        use(connection, number % KEYS, pages[number % KEYS])


def use(connection, number, page):
    """Sends one set and one get of the page. Any other reply than the expected one ends the benchmark."""
    connection.sendall(b"set page:%d 0 0 %d\r\n%b\r\n" % (number, PAGE_BYTES, page))
    expect(connection, b"STORED\r\n")
    connection.sendall(b"get page:%d\r\n" % number)
    expect(connection, b"VALUE page:%d 0 %d\r\n%b\r\nEND\r\n" % (number, PAGE_BYTES, page))


def expect(connection, wanted):
    found = bytearray()
    while len(found) < len(wanted):
        part = connection.recv(len(wanted) - len(found))
        if not part:
            fail("a connection was closed in the middle of an answer")
        found += part
    if found != wanted:
        fail(f"{bytes(found[:80])} instead of {wanted[:80]}")


def await_connections(server, count):
    """Waits until the server holds `count` connections besides the one that reads the statistics."""
    end = time.monotonic() + PATIENCE_S
    while True:
        held = int(server.stats()["curr_connections"])
        # The connection that reads the statistics counts too, and the previous one may still be counted.
        if 0 <= held - 1 - count <= 1:
            return
        if time.monotonic() > end:
            fail(f"{held} connections are held instead of {count}")
        time.sleep(0.05)


def settled_rss(server):
    """Returns the resident memory (bytes) when it has not changed for half a second, or after ten seconds."""
    last, since = server.rss_bytes(), time.monotonic()
    end = since + 10
    while time.monotonic() < end and time.monotonic() - since < 0.5:
        time.sleep(0.05)
        now = server.rss_bytes()
        if abs(now - last) > 64 << 10:
            last, since = now, time.monotonic()
    return server.rss_bytes()


def raise_file_limit(files):
    """Raises the file limit of this process and of the server that it starts. Each holds one end of every
    connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        fail(f"{files} open files are needed and the hard limit is {hard}: ulimit -Hn {files}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


if __name__ == "__main__":
    main()
