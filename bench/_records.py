"""Records of several shapes for the benchmarks that store small values. Each is made from its number, so every run has
the same bytes."""

import hashlib
import json
import random
import struct


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
