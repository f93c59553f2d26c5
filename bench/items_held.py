#!/usr/bin/env python3
"""How many items does `rebate memcached` hold where memcached holds 1?

Both servers get the same `-m`, one thread, and the same records: all are written twice with a pause in between, more
than fit, and then all are read back and compared. The records are four shapes of small values (JSON, a PHP session,
protobuf with 16 random bytes, an HTML fragment) and random bytes of several lengths, which nothing compresses.
RSS is read after the last get. The records are made from fixed seeds, so every run has the same bytes.
"""

import time

from _records import html_record, json_record, protobuf_record, random_record, session_record
from harness import Bench, fail, memcached, rebate_memcached

MEMORY_MIB = 32
BATCH = 200
RANDOM_BYTES = [16, 45, 64, 100, 256, 1_000, 1_500, 4_000, 20_000, 100_000, 300_000, 512_000]


def main():
    bench = Bench("items_held", __doc__, flags=add_flags)
    shapes = {"json": json_record, "session": session_record, "protobuf": protobuf_record,
              "html": html_record, **{f"random_{size}": random_record(size) for size in RANDOM_BYTES}}
    if bench.flags.only:
        unknown = set(bench.flags.only) - set(shapes)
        if unknown:
            fail(f"--only {' '.join(unknown)}: the shapes are {' '.join(shapes)}")
        shapes = {name: shapes[name] for name in bench.flags.only}
    elif bench.quick:
        shapes = {name: shapes[name] for name in ("html", "random_1000", "random_100000")}
    memory_mib = 2 if bench.quick else MEMORY_MIB
    found = {name: {"held": [], "rss": []} for name in shapes}
    for _ in bench.each_run():
        for name, record in shapes.items():
            count = 3 * (memory_mib << 20) // (len(record(0)) // (6 if name in SMALL else 1) + 30)
            sides = {}
            for side, start in (("memcached", memcached), ("rebate", rebate_memcached)):
                with start("-m", str(memory_mib)) as server:
                    sides[side] = held(server, record, max(count, 100), bench.quick)
            print(f"  {name}: {sides}", flush=True)
            found[name]["held"].append(sides["rebate"][0] / sides["memcached"][0])
            found[name]["rss"].append(sides["rebate"][1] / sides["memcached"][1])
    for name, ratios in found.items():
        size = len(shapes[name](0))
        least = REQUIRED.get(name, 1.3 if size <= 100 else 1.0)
        bench.row(f"ratio.items_held.{name}", f"items held, {name} ({size} B)", ratios["held"], "ratio",
                  at_least=least)
        bench.row(f"ratio.rss.{name}", f"RSS, {name}", ratios["rss"], "ratio", at_most=1.15)
    bench.finish()


def add_flags(parser):
    parser.add_argument("--only", nargs="+", metavar="SHAPE", help="measure these shapes only")


def held(server, record, count, quick):
    """Writes `count` records twice and reads them back. Returns the items found and the RSS (MiB)."""
    with server.connect() as connection, connection.makefile("rb") as reader:
        for _ in range(2):
            for first in range(0, count, BATCH):
                numbers = range(first, min(first + BATCH, count))
                connection.sendall(b"".join(set_command(number, record(number)) for number in numbers))
                for number in numbers:
                    answer = reader.readline()
                    # memcached refuses an item if it cannot evict in time.
                    if answer != b"STORED\r\n" and not answer.startswith(b"SERVER_ERROR out of memory"):
                        fail(f"{server.words}: record {number} was answered {answer}")
            time.sleep(0.1 if quick else 2)
        found = 0
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            connection.sendall(b"get " + b" ".join(map(key, numbers)) + b"\r\n")
            while (head := reader.readline()) != b"END\r\n":
                _, name, _, size = head.split()
                value = reader.read(int(size) + 2)[:-2]
                if value != record(int(name[4:])):
                    fail(f"{server.words}: {name} reads back differently")
                found += 1
    return found, round(server.rss_bytes() / (1 << 20), 1)


def set_command(number, value):
    return b"set %s 0 0 %d\r\n%s\r\n" % (key(number), len(value), value)


def key(number):
    return b"key:%07d" % number


SMALL = {"json", "session", "protobuf", "html"}
# Items held where memcached holds 1, with automatic dictionaries.
REQUIRED = {"json": 2.8, "session": 2.8, "protobuf": 1.35, "html": 3.6}


if __name__ == "__main__":
    main()
