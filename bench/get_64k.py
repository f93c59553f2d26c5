#!/usr/bin/env python3
"""What a compressed 64 KiB html value costs a reader, and where the time goes.

`rebate load`, gets only, 1,000/s with uniform gaps on 4 connections, keys drawn alike, values cut from html:
- alone: memcached, the values as they are.
- rebate: `serve --compress on` before memcached, the same values compressed.
Bar: rebate's p50 at most that of memcached alone + 1.3 x raw decompress + 60 us. Raw decompress is the
median over the very streams that memcached then holds, read by `frame_read` with the server's engines.

The breakdown measures each stage on its own and compares the median sum with the median p50 (bar: within 10 %):
- reply: 64 KiB through `serve --compress off --store embedded`: client, sockets and session, no codec, no hop.
- hop: a raw value of the stored size through `--compress off`, memcached store over embedded store.
- decompress: the mean time that rebate's own metrics give for these very gets. It is above the raw time, which
  a hot loop reaches: at this rate caches and branch predictors are cold when a value comes.
- checksum: p50 on the stored streams.
The sides take turns within a run, each time beginning with another one.
"""

import json
import subprocess
from statistics import median

from harness import ROOT, Bench, fail, html_pages, load, memcached, rebate, us, written

KEYS = 200
CONNECTIONS = 4
EMBEDDED = ["--compress", "off", "--store", "embedded", "--memory", "256MiB"]


def main():
    bench = Bench("get_64k", __doc__, flags=flags)
    reader = frame_read()
    pages, source = html_pages(bench.flags.corpus, 8 if bench.quick else 100)
    corpus = written("pages", pages)
    print(f"values: 64 KiB, cut from {source}")
    with (memcached("-m", "256") as alone, memcached("-m", "256") as compressed,
          memcached("-m", "256") as small,
          rebate("--compress", "on", "--store", f"memcached://{compressed.address}",
                 "--admin-listen", "127.0.0.1:0") as ours,
          rebate(*EMBEDDED) as raw, rebate(*EMBEDDED) as small_embedded,
          rebate("--compress", "off", "--store",
                 f"memcached://{small.address}") as small_memcached):
        large = ["--value-size", "64KiB", "--corpus", corpus]
        gets(bench, ours, 1, *large)
        raw_cost = read_frames(reader, compressed)
        stored = ["--value-size", raw_cost["stored_bytes_mean"], "--payload", "random"]
        sides = {"alone": (alone, large), "rebate": (ours, large), "reply": (raw, large),
                 "small_embedded": (small_embedded, stored),
                 "small_memcached": (small_memcached, stored)}
        found = {name: [] for name in sides}
        found["raw"], found["decompress"] = [], []
        for run in bench.each_run():
            for name in turns(list(sides), run):
                server, values = sides[name]
                before = decompression(ours)
                found[name].append(us(gets(bench, server, 1 if bench.quick else 5, *values)))
                if name == "rebate":
                    seconds, jobs = difference(decompression(ours), before)
                    found["decompress"].append(seconds / jobs * 1e6)
            found["raw"].append(read_frames(reader, compressed))
    report(bench, found)


def report(bench, found):
    raw_us = [raw["decompress_ns"]["p50"] / 1e3 for raw in found["raw"]]
    checksum = [raw["checksum_ns"]["p50"] / 1e3 for raw in found["raw"]]
    hop = difference(found["small_memcached"], found["small_embedded"])
    limit = [alone + 1.3 * raw + 60 for alone, raw in zip(found["alone"], raw_us)]
    total = [sum(stages) for stages in zip(found["reply"], hop, found["decompress"], checksum)]
    codec = found["raw"][0]["codec"]
    bench.row("p50.alone.64KiB.get", "memcached alone: get p50", found["alone"], "us")
    bench.row("p50.rebate.64KiB.get", "rebate: get p50", found["rebate"], "us")
    bench.row("decompress.raw.64KiB", f"raw decompress ({codec}): p50", raw_us, "us")
    bench.row("stored_bytes.rebate.64KiB", "stored bytes of a value, mean",
              [raw["stored_bytes_mean"] for raw in found["raw"]], "B")
    bench.row("limit.p50.64KiB.get", "limit: alone + 1.3 x decompress + 60 us", limit, "us")
    bench.row("margin.p50.64KiB.get", "rebate's p50 minus the limit",
              difference(found["rebate"], limit), "us", at_most=0)
    bench.row("stage.reply.64KiB.get", "stage: a 64 KiB reply, no codec, no hop", found["reply"],
              "us")
    bench.row("stage.hop.64KiB.get", "stage: memcached instead of embedded store", hop, "us")
    bench.row("stage.decompress.64KiB.get", "stage: decompress, as served", found["decompress"],
              "us")
    bench.row("stage.checksum.64KiB.get", "stage: CRC-32C of 64 KiB", checksum, "us")
    bench.row("stage.sum.64KiB.get", "stages together", total, "us")
    error = abs(median(total) / median(found["rebate"]) - 1) * 100
    bench.row("stage.error.64KiB.get", "median sum of stages against median p50", [error], "%",
              at_most=10)
    bench.finish()


def gets(bench, server, seconds, *values):
    return load(server, "--rate", bench.flags.rate, "--arrivals", "uniform", "-c", CONNECTIONS,
                "--get-share", 1, "--keys", KEYS, "--zipf", 0, "-d", f"{seconds}s", *values)


def decompression(server):
    """Seconds that the server has spent on decompress jobs, and how many were done."""
    metrics = server.metrics()
    labels = 'op="decompress",device="software",'
    parts = [f'rebate_job_seconds_total{{{labels}part="service"}}',
             f'rebate_jobs_total{{{labels}placement="software",reason="policy",outcome="done"}}']
    return [metrics.get(part, 0) for part in parts]


def frame_read():
    """Builds the reader and says where it is."""
    build = ["cargo", "build", "--release", "--quiet", "-p", "drivers", "--example", "frame_read"]
    if subprocess.run(build, cwd=ROOT).returncode:
        fail("cannot build drivers/examples/frame_read.rs")
    return ROOT / "target" / "release" / "examples" / "frame_read"


def read_frames(reader, store):
    """Times of decompressing and checking what `store` holds."""
    frames = written("frames", map(store.stored, store.keys()))
    done = subprocess.run([reader, frames], capture_output=True, text=True)
    if done.returncode:
        fail(f"{reader} {frames}: {done.stderr}")
    return json.loads(done.stdout)


def difference(left, right):
    return [one - other for one, other in zip(left, right)]


def turns(names, run):
    shift = run % len(names)
    return names[shift:] + names[:shift]


def flags(parser):
    parser.add_argument("--corpus", metavar="DIR",
                        help="html files to cut values from (default: /usr/share/doc)")
    parser.add_argument("--rate", type=int, default=1000, metavar="N",
                        help="gets per second (default: 1000)")


if __name__ == "__main__":
    main()
