#!/usr/bin/env python3
"""What does TLS cost clients of `rebate memcached`, compared with memcached's own TLS and with no TLS?

`rebate memcached` and memcached run with one thread each, with TLS and without. Compression is off, so that the value
path costs nothing. Values have 1 KiB, and 90 % of the requests are gets. Certificates are made with openssl.
- Saturation: `rebate load` with 16 connections and one request in flight on each. Criterion: at least memcached's
  requests per second, both with TLS.
- Fixed rate: 10,000 requests/s. Criterion: TLS adds at most 10 us to the p50 of gets. The client's own encryption is
  part of that.
- Idle connections: 10,000 (`--connections`), each of which did one set and get of 64 KiB. Criterion: at most 24 KiB of
  resident memory for each.
- Floods by other clients: whole handshakes, halves of handshakes, and garbage, with pauses, so that the flood itself
  leaves the cores idle most of the time. Criterion: the p99 of requests at 1,000/s over TLS is at most 3 times that
  without a flood.
The sides take turns within a run, and each run begins with another side.
"""

import contextlib
import multiprocessing
import os
import pathlib
import socket
import ssl
import subprocess
import tempfile
import time

from harness import (SPARE_FILES, Bench, close, html_pages, load, memcached, opened, raise_file_limit, ratios,
                     rebate_memcached, settled_rss, turns, us, use_all)

SIDES = ["rebate.tls", "memcached.tls", "rebate.plain", "memcached.plain"]
FLOODS = ["handshakes", "halves", "garbage"]
RATE_PER_S = 10_000
BESIDE_RATE_PER_S = 1_000
# One attempt of a flood every so often, by each of its processes.
ATTEMPT_EVERY_S = 0.002
HELD_MAX = 200
# Different values in the test of idle connections.
PAGES = 64


def main():
    bench = Bench("tls", __doc__, flags=lambda parser: parser.add_argument(
        "--connections", type=int, metavar="N",
        help="idle connections (default: 10000; quick: 100)"))
    with tempfile.TemporaryDirectory() as folder:
        files = certificates(pathlib.Path(folder))
        costs(bench, files)
        idle(bench, files)
        floods(bench, files)
    bench.finish()


def certificates(folder):
    """Makes an authority and a server's certificate for 127.0.0.1. Returns the files by their roles."""
    ca, ca_key, key, request, cert = (folder / name for name in
                                      ["ca.pem", "ca.key", "server.key", "server.csr", "server.pem"])
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", ca, "-days", 2, "-subj", "/CN=authority")
    openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", "/CN=server")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", cert,
            "-days", 2, "-extfile", names)
    return {"ca": ca, "cert": cert, "key": key}


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def start(side, files, *arguments):
    flags = ["-m", "1024", *arguments]
    if side.endswith(".tls"):
        flags += ["-Z", "-o", f"ssl_chain_cert={files['cert']},ssl_key={files['key']}"]
    if side.startswith("memcached"):
        server = memcached(*flags)
    else:
        server = rebate_memcached(*flags, env={"REBATE_COMPRESS__MODE": "off"})
    if side.endswith(".tls"):
        server.trust = ssl.create_default_context(cafile=files["ca"])
    return server


def asked(server, files, *arguments):
    trust = ["--tls-ca", files["ca"]] if server.trust else []
    return load(server, *trust, "--get-share", 0.9, "--keys", 1_000,
                "--value-size", "1KiB", *arguments)


def costs(bench, files):
    duration = "1s" if bench.quick else "4s"
    per_s = {side: [] for side in SIDES}
    cpu_us = {side: [] for side in SIDES}
    p50_us = {side: [] for side in SIDES}
    with contextlib.ExitStack() as stack:
        servers = {side: stack.enter_context(start(side, files)) for side in SIDES}
        for run in bench.each_run():
            for side in turns(SIDES, run):
                before_s = servers[side].cpu_s()
                found = asked(servers[side], files, "--in-flight", 1, "-c", 16, "-d", duration,
                              "--warmup", "0s")
                requests = found["get"]["answered"] + found["set"]["answered"]
                per_s[side].append(requests / found["measured_s"])
                cpu_us[side].append((servers[side].cpu_s() - before_s) / requests * 1e6)
            for side in turns(SIDES, run):
                found = asked(servers[side], files, "--rate", RATE_PER_S, "--arrivals", "uniform",
                              "-c", 16, "-d", duration)
                p50_us[side].append(us(found))
    for side in SIDES:
        bench.row(f"rps.{side}.1KiB.get90", f"{side}: saturated", per_s[side], "requests/s")
    for protocol in ["tls", "plain"]:
        bench.row(f"ratio.rps.rebate_over_memcached.{protocol}.1KiB.get90",
                  f"rebate over memcached, {protocol}: saturated",
                  ratios(per_s[f"rebate.{protocol}"], per_s[f"memcached.{protocol}"]), "ratio",
                  at_least=1 if protocol == "tls" else None)
    for side in SIDES:
        bench.row(f"cpu_per_request.{side}.1KiB.get90", f"{side}: CPU, saturated", cpu_us[side],
                  "us/request")
    for side in SIDES:
        bench.row(f"p50.{side}.1KiB.get", f"{side}: get p50 at 10,000/s", p50_us[side], "us")
    for server in ["rebate", "memcached"]:
        added_us = [tls - plain for tls, plain in
                    zip(p50_us[f"{server}.tls"], p50_us[f"{server}.plain"])]
        bench.row(f"added.p50.{server}.1KiB.get", f"{server}, TLS minus plain: get p50", added_us, "us",
                  at_most=10 if server == "rebate" else None)


def idle(bench, files):
    count = bench.flags.connections or (100 if bench.quick else 10_000)
    raise_file_limit(count + SPARE_FILES)
    pages, _ = html_pages(None, PAGES)
    unused_kib, used_kib = [], []
    limit = ["-c", str(count + SPARE_FILES)]
    for _ in range(1 if bench.quick else min(3, bench.runs)):
        with start("rebate.tls", files, *limit) as server:
            # What the process keeps for any number of connections is not counted.
            first = opened(server, min(SPARE_FILES, count))
            use_all(first, pages)
            close(server, first)
            baseline = settled_rss(server)
            connections = opened(server, count)
            unused_kib.append((settled_rss(server) - baseline) / count / 1024)
            use_all(connections, pages)
            used_kib.append((settled_rss(server) - baseline) / count / 1024)
            close(server, connections)
    bench.row("connections.held.tls", "idle TLS connections held", [count], "connections")
    bench.row("rss_per_connection.tls.unused", "memory of a TLS connection never used", unused_kib,
              "KiB", at_most=24)
    bench.row("rss_per_connection.tls.used_once",
              "memory of a TLS connection used once, 64 KiB set and get", used_kib, "KiB", at_most=24)


def floods(bench, files):
    duration = "1s" if bench.quick else "5s"
    alone_us = {flood: [] for flood in FLOODS}
    beside_us = {flood: [] for flood in FLOODS}
    attempts_per_s = {flood: [] for flood in FLOODS}

    def p99_us(server):
        found = asked(server, files, "--rate", BESIDE_RATE_PER_S, "-d", duration)
        return us(found, which="p99_ns")

    with start("rebate.tls", files) as server:
        for _ in bench.each_run():
            for flood in FLOODS:
                alone_us[flood].append(p99_us(server))
                with flooded(flood, server.port) as attempts:
                    before, begun = attempts.value, time.monotonic()
                    beside_us[flood].append(p99_us(server))
                    attempts_per_s[flood].append((attempts.value - before) / (time.monotonic() - begun))
    for flood in FLOODS:
        bench.row(f"attempts.{flood}", f"flood of {flood}", attempts_per_s[flood], "attempts/s")
        bench.row(f"p99.alone.{flood}", f"get p99 at 1,000/s over TLS before the flood of {flood}",
                  alone_us[flood], "us")
        bench.row(f"p99.beside.{flood}", f"get p99 beside the flood of {flood}", beside_us[flood], "us")
        bench.row(f"ratio.p99.{flood}", f"get p99 beside over alone: {flood}",
                  ratios(beside_us[flood], alone_us[flood]), "ratio", at_most=3)


@contextlib.contextmanager
def flooded(flood, port):
    """Floods the port from a process of its own within the block. Gives the number of attempts so far."""
    attempts, stop = multiprocessing.Value("l", 0), multiprocessing.Event()
    child = multiprocessing.Process(target=attempt_all, args=(flood, port, attempts, stop))
    child.start()
    try:
        yield attempts
    finally:
        stop.set()
        child.join()


def attempt_all(flood, port, attempts, stop):
    # The flood must not take the processor from those who are measured: on other machines it would have its own.
    os.nice(19)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    held = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            attempt(flood, port, trust, held)
        attempts.value += 1
        if len(held) > HELD_MAX:
            held.pop(0).close()
        time.sleep(ATTEMPT_EVERY_S)


def attempt(flood, port, trust, held):
    plain = socket.create_connection(("127.0.0.1", port), timeout=5)
    if flood == "handshakes":
        trust.wrap_socket(plain).close()
    elif flood == "halves":
        # The head of a record that holds the first part of a greeting, and nothing after it.
        plain.sendall(b"\x16\x03\x01\x02\x00\x01")
        held.append(plain)
    else:
        plain.sendall(os.urandom(600))
        plain.close()


if __name__ == "__main__":
    main()
