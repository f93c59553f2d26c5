#!/usr/bin/env python3
"""How many items does `rebate memcached` hold where memcached holds 1?

Both servers get the same `-m`, one thread, and the same records: all are written twice with a pause in between, more
than fit, and then all are read back and compared. The records are four shapes of small values (JSON, a PHP session,
protobuf with 16 random bytes, an HTML fragment) and random bytes of several lengths, which nothing compresses.
RSS is read after the last get. The records are made from fixed seeds, so every run has the same bytes.
"""

import hashlib
import json
import random
import struct
import time

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


def json_record(number):
    draw = random.Random(number)
    record = {"id": draw.randrange(10**9), "type": draw.choice(["order", "invoice", "refund"]),
              "user": {"id": draw.randrange(10**7), "plan": draw.choice(["free", "pro", "team"])},
              "updated": f"2026-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}T{draw.randrange(24):02}:00:00Z",
              "total": round(draw.uniform(1, 500), 2), "items": draw.randrange(1, 20),
              "parent": draw.randrange(10**9), "paid": draw.random() < 0.9}
    return json.dumps(record, separators=(",", ":")).encode()


def session_record(number):
    draw = random.Random(number)
    token = hashlib.sha256(b"%d" % number).hexdigest()[:20]
    return (f'user_id|i:{draw.randrange(10**7)};csrf|s:20:"{token}";locale|s:5:"'
            f'{draw.choice(["en_US", "de_DE", "fr_FR"])}";cart|a:1:{{s:4:"item";i:{draw.randrange(10**5)};}}'
            f'last_seen|i:{1_790_000_000 + draw.randrange(10**6)};flash|a:0:{{}}'
            f'seed|s:8:"{draw.randrange(16**8):08x}";theme|s:4:"dark";').encode()


def protobuf_record(number):
    draw = random.Random(number)
    body = b"\x08" + varint(draw.randrange(10**9)) + b"\x12\x10" + draw.randbytes(16)
    body += b"\x1a\x0c" + f"user-{draw.randrange(10**7):07}".encode() + b"\x20" + varint(draw.randrange(10**6))
    return body + b"\x29" + struct.pack("<d", draw.randrange(1, 100)) + b"\x32\x06active\x38\x01"


def varint(value):
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def html_record(number):
    draw = random.Random(number)
    rows = "".join(f'<li class="item"><a href="/product/{draw.randrange(10**6)}" title="Product '
                   f'{draw.randrange(10**4)}">Product {draw.randrange(10**4)}</a><span class="price">'
                   f'{draw.randrange(1, 999)}.{draw.randrange(100):02}</span></li>\n' for _ in range(5))
    return f'<div class="widget" id="w{draw.randrange(10**6)}">\n<ul class="list">\n{rows}</ul>\n</div>\n'.encode()


def random_record(size):
    # 1 MiB of random bytes; each record is a window of it with its number in front.
    pool = random.Random(size).randbytes((1 << 20) + size)

    def record(number):
        start = number * 7919 % (1 << 20)
        return struct.pack("<I", number) + pool[start:start + size - 4]

    return record


SMALL = {"json", "session", "protobuf", "html"}
# Items held where memcached holds 1, with automatic dictionaries.
REQUIRED = {"json": 2.8, "session": 2.8, "protobuf": 1.35, "html": 3.6}


if __name__ == "__main__":
    main()
