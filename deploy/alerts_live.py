#!/usr/bin/env python3
"""Checks with a real Prometheus that the loss of one memcached of two raises its alert within a minute, and that its
return ends it.

Usage: deploy/alerts_live.py REBATE
Needs memcached and prometheus (Debian: apt-get install memcached prometheus). It takes about two minutes, most of which
it waits. Exit codes: 0 passed, 1 failed, 2 bad usage, 3 skipped: a program is missing.
"""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

RULES = pathlib.Path(__file__).resolve().parent / "alerts.yaml"
SCRAPE_S = 5
LIMIT_S = 60


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def memcached(port):
    return subprocess.Popen(["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root"])


def page(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def wait(what, limit_s, probe):
    """Returns the seconds after which `probe` was true."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s:
        if probe():
            return time.monotonic() - begun
        time.sleep(0.2)
    raise SystemExit(f"FAILED: {what}: not within {limit_s} s")


def firing(prometheus, name, server):
    answer = json.loads(page(prometheus, "/api/v1/alerts") or '{"data":{"alerts":[]}}')
    return any(alert["state"] == "firing" and alert["labels"]["alertname"] == name
               and alert["labels"].get("server") == server for alert in answer["data"]["alerts"])


def configuration(folder, admin):
    file = pathlib.Path(folder) / "prometheus.yml"
    # JSON is YAML.
    file.write_text(json.dumps({
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "rebate", "static_configs": [{"targets": [admin]}]}],
    }))
    return file


def run(rebate, folder, children):
    ports = [free_port(), free_port()]
    servers = [memcached(port) for port in ports]
    children += servers
    admin, prometheus = (f"127.0.0.1:{free_port()}" for _ in range(2))
    store = "memcached://" + ",".join(f"127.0.0.1:{port}" for port in ports)
    children.append(subprocess.Popen([rebate, "serve", "--listen", "127.0.0.1:0", "--admin-listen", admin,
                                      "--store", store, "--threads", "1"], stdout=subprocess.DEVNULL))
    children.append(subprocess.Popen(
        ["prometheus", f"--config.file={configuration(folder, admin)}", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address={prometheus}", "--log.level=warn"]))
    scraped = '/api/v1/query?query=sum(rebate_ring_server_in)'
    wait("both servers are in the ring and scraped", 60,
         lambda: '"2"' in page(prometheus, scraped))
    lost = f"127.0.0.1:{ports[1]}"
    servers[1].kill()
    raised_s = wait("the alert is raised", LIMIT_S, lambda: firing(prometheus, "RebateServerOut", lost))
    if firing(prometheus, "RebateServerOut", f"127.0.0.1:{ports[0]}"):
        raise SystemExit("FAILED: the alert names the server that is there")
    children.append(memcached(ports[1]))
    ended_s = wait("the alert ends", LIMIT_S, lambda: not firing(prometheus, "RebateServerOut", lost))
    print(f"raised {raised_s:.1f} s after the loss, ended {ended_s:.1f} s after the return")
    print("1 passed, 0 failed")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for program in ("memcached", "prometheus"):
        if not shutil.which(program):
            print(f"SKIPPED: {program} is missing", file=sys.stderr)
            return 3
    children = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(sys.argv[1], folder, children)
        finally:
            for child in children:
                child.kill()
                child.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
