#!/usr/bin/env python3
"""Measures the latency of a get of a compressed 64 KiB html value, and where the time goes.

`rebate load` sends only gets, 1,000/s with uniform gaps on 4 connections. All keys are equally likely, and values are
slices of html files. The sides are:
- alone: memcached with the values as they are.
- rebate: `serve --compress on` in front of memcached, which stores the same values compressed.
Criterion: the p50 of rebate is at most that of memcached alone + 1.3 x raw decompress + 60 us. Raw decompress is the
median time over the streams that memcached then holds, which `frame_read` reads with the server's engines.

The breakdown measures each stage alone and compares the sum of the medians with the median p50 (criterion: within
10 %):
- reply: 64 KiB through `serve --compress off --store embedded`. This is client, sockets and session, without codec and
  hop.
- hop: a raw value of the stored size through `--compress off`, with a memcached store instead of the embedded store.
- decompress: the mean time in rebate's own metrics for these gets. It is longer than the raw time, which is measured
  in a hot loop: at this rate caches and branch predictors are cold when a value arrives.
- checksum: the p50 on the stored streams.
The sides take turns within a run, and each run begins with another side.

`--path` measures instead where each microsecond of the same get goes on four paths: deflate in the frontend, the
virtual IAA in the frontend, and the virtual IAA in a service over a lane and over gRPC. The parts are means from the
frontend's metrics, and they add up. `store` lasts from the request to memcached until its answer is read. `job` lasts
from the submission of the job to its completion, and includes `service` in the device or the service. `frontend` is
the rest between parse and reply. `write` lasts until the socket has accepted the reply. `sockets` is the rest of the
mean that the client measured: both directions to the frontend, the client's wake-ups and the frontend's. The output
also has the cost of a get for each process: CPU time, sleeps (voluntary context switches), page faults, and system
calls if strace is installed. System calls are counted in a separate run.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from statistics import median

from harness import (ROOT, Bench, compression_service, fail, html_pages, load, memcached, rebate,
                     turns, us, written)

KEYS = 200
CONNECTIONS = 4
WAYS = ["software", "iaa", "lane", "grpc"]
OFFLOAD = ["--policy", "bounded-offload", "--set", "runtime.offload_bytes_min=0"]
PARTS = {"client": "mean that the client saw", "store": "memcached, there and back",
         "job": "decompression, until it is back", "service": "of it in the device or service",
         "write": "until the client's socket has taken it", "frontend": "the rest of the frontend",
         "sockets": "sockets to and from the client, wake-ups", "cpu": "CPU time",
         "sleeps": "sleeps", "faults": "page faults"}
EMBEDDED = ["--compress", "off", "--store", "embedded", "--memory", "256MiB"]


def main():
    bench = Bench("get_64k", __doc__, flags=flags)
    if bench.flags.path:
        return path(bench)
    reader = frame_read(bench.quick)
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


def path(bench):
    pages, source = html_pages(bench.flags.corpus, 8 if bench.quick else 100)
    large = ["--value-size", "64KiB", "--corpus", written("pages", pages)]
    print(f"values: 64 KiB, cut from {source}")
    with ExitStack() as stack:
        ways = {name: start(stack, name) for name in WAYS}
        found = {name: [] for name in ways}
        for run in bench.each_run():
            for name in turns(list(ways), run):
                found[name].append(spent(bench, ways[name], large))
        calls = {name: system_calls(bench, way, large) for name, way in ways.items()}
    for name in ways:
        for part in found[name][0]:
            what = PARTS[part.split(".")[0]]
            unit = "1" if part.startswith(("sleeps", "faults")) else "us"
            bench.row(f"path.{part}.{name}", f"{name}: {what} ({part})",
                      [run[part] for run in found[name]], unit)
        for process, count in calls[name].items():
            bench.row(f"path.system_calls.{process}.{name}",
                      f"{name}: system calls of {process} a get", [count], "1")
    bench.finish()


def start(stack, name):
    """Starts the processes of a path and returns them by name, the frontend first."""
    store = stack.enter_context(memcached("-m", "256"))
    common = ["--threads", "1", "--workers", "0"]
    device = ["--device", "virtual-iaa", "--allow-virtual"] + OFFLOAD
    processes = {}
    place = ["--policy", "always-software"] if name == "software" else device
    if name in ("lane", "grpc"):
        socket = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "socket"
        processes["compression"] = stack.enter_context(compression_service({name: socket}, *common, *device))
        address = f"lane:{socket}" if name == "lane" else f"unix:{socket}"
        place = ["--compression", address] + OFFLOAD
    front = rebate("--compress", "on", "--codec", "deflate", "--set", "compress.readable_by=iaa",
                   "--store", f"memcached://{store.address}", "--admin-listen", "127.0.0.1:0", *common, *place)
    return {"frontend": stack.enter_context(front), **processes, "memcached": store}


def spent(bench, way, values):
    """Returns the time of each part of a get, and the cost of a get for each process."""
    frontend = way["frontend"]
    # A virtual device computes its results here and remembers them.
    gets(bench, frontend, 1, *values)
    before = frontend.metrics(), {name: costs(own) for name, own in way.items()}
    # All keys are stored by now, and further sets would be part of the sums.
    report = gets(bench, frontend, 1 if bench.quick else 5, "--no-prepopulate", *values)
    after = frontend.metrics(), {name: costs(own) for name, own in way.items()}
    grown = {name: value - before[0].get(name, 0) for name, value in after[0].items()}
    count = grown['rebate_request_duration_seconds_count{command="get"}']

    def each(beginning, *labels):
        names = [name for name in grown
                 if name.startswith(beginning) and all(label in name for label in labels)]
        return sum(grown[name] for name in names) / count * 1e6

    parts = {
        "client": report["get"]["latency"]["mean_ns"] / 1e3,
        "store": each("rebate_request_stage_seconds_sum", 'stage="store"'),
        "job": each("rebate_job_seconds_total", 'op="decompress"'),
        "service": each("rebate_job_seconds_total", 'op="decompress"', 'part="service"'),
        "write": each("rebate_request_stage_seconds_sum", 'stage="write"'),
    }
    whole = each("rebate_request_duration_seconds_sum", 'command="get"')
    parts["frontend"] = whole - parts["store"] - parts["job"]
    parts["sockets"] = parts["client"] - whole - parts["write"]
    for name in way:
        cpu_s, sleeps, faults = difference(after[1][name], before[1][name])
        parts[f"cpu.{name}"] = cpu_s * 1e6 / count
        parts[f"sleeps.{name}"] = sleeps / count
        parts[f"faults.{name}"] = faults / count
    return parts


def costs(server):
    """Returns the CPU time so far (s), the number of sleeps of all threads, and the page faults that needed no disk."""
    lines = [line for path in server._threads("status") for line in path.read_text().splitlines()]
    sleeps = [int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:")]
    stat = pathlib.Path(f"/proc/{server.child.pid}/stat").read_text().rpartition(")")[2].split()
    return [server.scheduled_s()[0], sum(sleeps), int(stat[7])]


def system_calls(bench, way, values):
    """Returns the system calls per get of each process. They are counted in a run that is not timed."""
    if not shutil.which("strace"):
        return {}
    counts = {}
    for name, server in way.items():
        with tempfile.NamedTemporaryFile("r") as table:
            watch = subprocess.Popen(["strace", "-f", "-c", "-S", "calls", "-U", "calls,name",
                                      "-o", table.name, "-p", str(server.child.pid)],
                                     stderr=subprocess.DEVNULL)
            before = way["frontend"].metrics()["rebate_get_keys_total"]
            gets(bench, way["frontend"], 2, "--no-prepopulate", *values)
            count = way["frontend"].metrics()["rebate_get_keys_total"] - before
            watch.send_signal(2)
            watch.wait()
            rows = [line.split() for line in table.read().splitlines()]
        calls = {row[1]: int(row[0]) for row in rows
                 if len(row) == 2 and row[0].isdigit() and row[1] != "total"}
        counts[name] = sum(calls.values()) / count
        most = sorted(calls.items(), key=lambda call: -call[1])[:6]
        print(f"{name}: " + ", ".join(f"{call} {number / count:.2f}" for call, number in most))
    return counts


def gets(bench, server, seconds, *values):
    return load(server, "--rate", bench.flags.rate, "--arrivals", "uniform", "-c", CONNECTIONS,
                "--get-share", 1, "--keys", KEYS, "--zipf", 0, "-d", f"{seconds}s", *values)


def decompression(server):
    """Returns the time that the server has spent on decompress jobs (s), and the number of these jobs."""
    metrics = server.metrics()
    labels = 'op="decompress",device="software",'
    parts = [f'rebate_job_seconds_total{{{labels}part="service"}}',
             f'rebate_jobs_total{{{labels}placement="software",reason="policy",outcome="done"}}']
    return [metrics.get(part, 0) for part in parts]


def frame_read(quick):
    """Builds the reader and returns its path. With `quick` it is the debug build that the tests use. The whole
    workspace is built, so that the builds of the tests are not repeated with other features."""
    profile = "debug" if quick else "release"
    build = ["cargo", "build", "--profile", "dev" if quick else "release", "--quiet",
             "--workspace", "--example", "frame_read"]
    if subprocess.run(build, cwd=ROOT).returncode:
        fail("cannot build drivers/examples/frame_read.rs")
    return ROOT / "target" / profile / "examples" / "frame_read"


def read_frames(reader, store):
    """Returns the times to decompress and to check the values that `store` holds."""
    frames = written("frames", map(store.stored, store.keys()))
    done = subprocess.run([reader, frames], capture_output=True, text=True)
    if done.returncode:
        fail(f"{reader} {frames}: {done.stderr}")
    return json.loads(done.stdout)


def difference(left, right):
    return [one - other for one, other in zip(left, right)]


def flags(parser):
    parser.add_argument("--path", action="store_true",
                        help="where each microsecond goes, with and without a lane")
    parser.add_argument("--corpus", metavar="DIR",
                        help="html files to cut values from (default: /usr/share/doc)")
    parser.add_argument("--rate", type=int, default=1000, metavar="N",
                        help="gets per second (default: 1000)")


if __name__ == "__main__":
    main()
