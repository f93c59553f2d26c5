#!/usr/bin/env python3
"""What deploy/run.sh measured, as a table; refuses to call a run good in which a value was wrong.

Usage: report.py ports | report.py table DIR
"""

import json
import os
import socket
import statistics
import sys
from pathlib import Path

CONFIGURATIONS = [
    "monolith_software",
    "monolith_iaa",
    "microservice_software",
    "microservice_iaa",
    "lane_iaa",
]
SERVICES = ["frontend", "compression", "store", "memcached", "scheduler"]
LATE_SHARE_MAX = 0.001


def ports():
    """Two ports of the loopback that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    print(*[own.getsockname()[1] for own in sockets])


def counters(path):
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: float(value) for name, value in lines}


def point(path):
    """One run: latencies (us), CPU per request (us) by container, and what speaks against it."""
    report = json.loads(path.read_text())
    before, after = (counters(path.with_suffix(end)) for end in (".before", ".after"))
    spec, ops = report["spec"], [report["get"], report["set"]]
    loaded_s = (spec["warmup"] + spec["duration"]) / 1e9
    requests = spec["pace"]["open"]["rate_per_s"] * loaded_s + spec["keys"]
    grown = {name: after[name] - before[name] for name in after}
    against = []
    if report["wrong"]["count"]:
        against.append(f"{report['wrong']['count']} wrong values")
    if errors := sum(op["errors"] for op in ops):
        against.append(f"{errors} errors")
    if grown["late"] > LATE_SHARE_MAX * max(grown["virtual_jobs"], 1):
        against.append(f"{100 * grown['late'] / grown['virtual_jobs']:.1f} % late")
    if grown["fallbacks"]:
        against.append(f"{grown['fallbacks']:.0f} fallbacks")
    if path.name.startswith("lane_") and not grown["lane_jobs"]:
        against.append("no lane")
    if report["generator"]["was_bottleneck"]:
        against.append("generator starved")
    latency = report["get"]["latency"]
    cpu_us = {name: 1e6 * grown[name] / requests for name in grown if name.startswith("cpu_s.")}
    return {
        "p50": latency["p50_ns"] / 1e3,
        "p90": latency["p90_ns"] / 1e3,
        "wrong": report["wrong"]["count"],
        "against": against,
        **cpu_us,
    }


def median(runs, name):
    values = [run[name] for run in runs if name in run]
    return f"{statistics.median(values):.0f}" if values else "-"


def row(cells):
    print("| " + " | ".join(cells) + " |")


def latencies(folder):
    """The table of configurations; returns how many values were wrong."""
    points = {}
    for path in folder.glob("*.*.*.json"):
        configuration, size, _ = path.name.removesuffix(".json").split(".")
        spec = json.loads(path.read_text())["spec"]
        value_bytes = spec["value_bytes"]["fixed"]["bytes"]
        key = (value_bytes, CONFIGURATIONS.index(configuration), size, configuration)
        points.setdefault(key, []).append(point(path))
    proxy = "with docker-proxy" if running("docker-proxy") else "without docker-proxy"
    rate = spec["pace"]["open"]["rate_per_s"]
    load = f"{rate:.0f}/s, {100 * spec['get_share']:.0f} % gets, {spec['connections']} connections"
    print(f"\nOn the published port ({proxy}), {os.cpu_count()} cores shared by all: {load}.")
    print("Latency of gets and CPU time per request of each container (us): medians of the runs.\n")
    row(["size", "configuration", "runs", "p50", "p90", *SERVICES, "does not hold"])
    row(["---"] * (6 + len(SERVICES)))
    for (_, _, size, configuration), runs in sorted(points.items()):
        cpu = [median(runs, f"cpu_s.{service}") for service in SERVICES]
        bad = [", ".join(run["against"]) for run in runs if run["against"]]
        shown = f"{len(bad)}: {'; '.join(sorted(set(bad)))}" if bad else ""
        latency = [median(runs, "p50"), median(runs, "p90")]
        row([size, configuration, str(len(runs)), *latency, *cpu, shown])
    return sum(run["wrong"] for runs in points.values() for run in runs)


def running(name):
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                return True
        except OSError:
            continue  # it ended meanwhile
    return False


def total(report, name):
    return sum(report[op][name] for op in ("get", "set"))


def kills(folder):
    """The table of kills; returns what should not have happened."""
    problems = []
    print("\nA container killed under load, back after 2 s (4 KiB):\n")
    heads = ["answered", "errors", "misses", "wrong values", "connections lost", "errors later"]
    row(["configuration", "killed", *heads])
    row(["---"] * (2 + len(heads)))
    order = {name: place for place, name in enumerate(CONFIGURATIONS + SERVICES)}
    killed = [path.name.split(".")[:2] for path in (folder / "kills").glob("*.killed.json")]
    for configuration, service in sorted(killed, key=lambda pair: [order[name] for name in pair]):
        kill = folder / "kills" / f"{configuration}.{service}"
        during = json.loads(kill.with_name(kill.name + ".killed.json").read_text())
        after = json.loads(kill.with_name(kill.name + ".restarted.json").read_text())
        wrong = during["wrong"]["count"] + after["wrong"]["count"]
        lost, later = during["connections"]["lost"], total(after, "errors")
        served = [total(during, "answered"), total(during, "errors"), during["get"]["misses"]]
        row([configuration, service, *map(str, [*served, wrong, lost, later])])
        if wrong:
            problems.append(f"{wrong} values were wrong when {service} was killed")
        # The frontend holds the clients' connections; nothing else may cost one.
        if lost and service != "frontend":
            problems.append(f"{lost} connections were lost when {service} was killed")
        if later or not total(after, "answered"):
            problems.append(f"{later} requests failed after {service} was back")
    return problems


def table(folder):
    wrong = latencies(folder)
    problems = ([f"{wrong} values were wrong"] if wrong else []) + kills(folder)
    print()
    for problem in problems:
        print(f"FAILED: {problem}")
    if not problems:
        print("No value was wrong, and no connection was lost but those of a killed frontend.")
    sys.exit(1 if problems else 0)


match sys.argv[1:]:
    case ["ports"]:
        ports()
    case ["table", folder]:
        table(Path(folder))
    case _:
        sys.exit(__doc__)
