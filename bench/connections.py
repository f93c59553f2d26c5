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

from harness import (SPARE_FILES, Bench, close, html_pages, load, opened, raise_file_limit, rebate,
                     settled_rss, us, use_all)

PAGES = 64
ACTIVE_CONNECTIONS = 8


def main():
    bench = Bench("connections", __doc__, flags=lambda parser: parser.add_argument(
        "--connections", type=int, metavar="N",
        help="idle connections (default: 10000; quick: 200)"))
    count = bench.flags.connections or (200 if bench.quick else 10_000)
    raise_file_limit(count + SPARE_FILES)
    pages, source = html_pages(None, PAGES)
    print(f"{count} connections; values: {PAGES} of 64 KiB, {source}")
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


if __name__ == "__main__":
    main()
