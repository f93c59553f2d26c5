#!/usr/bin/env python3
"""Writes the Grafana dashboard deploy/grafana/rebate.json from the table of metrics (docs/operating/metrics.md).

The first row is what an operator looks at first. Below it, every family of the table has a panel with its meaning.

Usage: scripts/dashboard.py [--check]
  --check   only says whether the file is up to date, and with promtool whether Prometheus reads every query
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/operating/metrics.md"
TYPES = ROOT / "tests/recorded/metric_names.txt"
DASHBOARD = ROOT / "deploy/grafana/rebate.json"
OF = 'instance=~"$instance"'

# Title, unit of Grafana, and the queries with their legends.
FIRST = [
    ("Ready", "bool_yes_no", [("rebate_ready{%s}", "{{instance}}")]),
    ("Commands per second", "reqps",
     [("sum by (command) (rate(rebate_commands_total{%s}[$__rate_interval]))", "{{command}}")]),
    ("Hit ratio", "percentunit",
     [('sum(rate(rebate_commands_total{%s,command="get",result="hit"}[$__rate_interval]))'
       ' / sum(rate(rebate_commands_total{%s,command="get"}[$__rate_interval]))', "hits")]),
    ("Time per request", "s",
     [("histogram_quantile(0.5, sum by (le, command) "
       "(rate(rebate_request_duration_seconds_bucket{%s}[$__rate_interval])))", "{{command}} p50"),
      ("histogram_quantile(0.99, sum by (le, command) "
       "(rate(rebate_request_duration_seconds_bucket{%s}[$__rate_interval])))", "{{command}} p99")]),
    ("Stored bytes per byte of values", "percentunit",
     [('sum(rate(rebate_value_bytes_total{%s,direction="written",stage="stored"}[$__rate_interval]))'
       ' / sum(rate(rebate_value_bytes_total{%s,direction="written",stage="logical"}[$__rate_interval]))',
       "stored / logical")]),
    ("Errors that clients see, per second", "reqps",
     [("sum by (command, kind, server) (rate(rebate_errors_total{%s}[$__rate_interval]))",
       "{{command}} {{kind}} {{server}}")]),
    ("Jobs by device and reason, per second", "ops",
     [("sum by (device, placement, reason) (rate(rebate_jobs_total{%s}[$__rate_interval]))",
       "{{device}} {{placement}} {{reason}}")]),
    ("CPU time (cores)", "none", [("rate(process_cpu_seconds_total{%s}[$__rate_interval])", "{{instance}}")]),
    ("Memory", "bytes",
     [("process_resident_memory_bytes{%s}", "resident {{instance}}"),
      ("sum by (instance) (rebate_memory_max_bytes{%s})", "most {{instance}}")]),
]


def families():
    """The families of the table in its order, with their labels and meaning."""
    found = {}
    for line in TABLE.read_text(encoding="utf-8").split("\n## /metrics")[1].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3:
            for name in re.findall(r"`((?:rebate|memcached|process)_[a-z0-9_]+)`", cells[0]):
                labels = re.findall(r"(?:^|[;,] |`)([a-z_]+)(?==|`:|$|,|;)", cells[1])
                found.setdefault(name, (labels, cells[2]))
    return found


def types():
    return dict(line.split() for line in TYPES.read_text(encoding="utf-8").splitlines() if line)


def type_of(name):
    """The type of a family. Those of TLS, programs and sealed values are recorded nowhere, and their names tell it."""
    return types().get(name) or ("counter" if name.endswith("_total") else "gauge")


def unit_of(name, kind):
    if kind == "counter":
        return "Bps" if "_bytes_" in name else "ops"
    if name.endswith("_timestamp_seconds"):
        return "dateTimeAsIso"
    if name.endswith("_seconds"):
        return "s"
    return "bytes" if name.endswith("_bytes") else "none"


def queries_of(name, kind):
    if kind == "histogram":
        rate = f"sum by (le) (rate({name}_bucket{{{OF}}}[$__rate_interval]))"
        return [(f"histogram_quantile({share}, {rate})", f"p{share * 100:g}") for share in (0.5, 0.99)]
    if kind == "counter":
        return [(f"rate({name}{{{OF}}}[$__rate_interval])", "")]
    if name.endswith("_timestamp_seconds"):
        return [(f"{name}{{{OF}}} * 1000", "")]
    return [(f"{name}{{{OF}}}", "")]


def panel(number, place, title, unit, queries, description=""):
    return {
        "id": number, "type": "timeseries", "title": title, "description": description, "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(ord("A") + index), "expr": query,
                     **({"legendFormat": legend} if legend else {})}
                    for index, (query, legend) in enumerate(queries)],
    }


def plain(markdown):
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "").replace("\\|", "|")


def group_of(name):
    words = name.split("_")
    return " ".join(words[:2]) if words[0] == "rebate" else words[0]


def dashboard():
    numbers = iter(range(1, 1000))
    panels, row = [], 0
    for index, (title, unit, queries) in enumerate(FIRST):
        filled = [(query.replace("%s", OF), legend) for query, legend in queries]
        place = {"x": index % 3 * 8, "y": index // 3 * 8, "w": 8, "h": 8}
        panels.append(panel(next(numbers), place, title, unit, filled))
        row = place["y"] + 8
    groups = {}
    for name, (_, meaning) in families().items():
        groups.setdefault(group_of(name), []).append((name, meaning))
    for group, members in groups.items():
        inside = []
        for index, (name, meaning) in enumerate(members):
            place = {"x": index % 3 * 8, "y": row + 1 + index // 3 * 7, "w": 8, "h": 7}
            kind = type_of(name)
            inside.append(panel(next(numbers), place, name, unit_of(name, kind), queries_of(name, kind),
                                plain(meaning)))
        panels.append({"id": next(numbers), "type": "row", "title": group, "collapsed": True,
                       "gridPos": {"x": 0, "y": row, "w": 24, "h": 1}, "panels": inside})
        row += 1
    choices = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {"name": "instance", "label": "Instance", "type": "query", "multi": True, "includeAll": True,
         "datasource": {"type": "prometheus", "uid": "${datasource}"}, "refresh": 2,
         "query": {"query": "label_values(rebate_build_info, instance)", "refId": "instances"}},
    ]
    return {"uid": "rebate", "title": "Rebate", "tags": ["rebate"], "schemaVersion": 39, "version": 1,
            "editable": True, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": choices}, "panels": panels}


def every_query(panels):
    for one in panels:
        yield from (target["expr"] for target in one.get("targets", []))
        yield from every_query(one.get("panels", []))


def unreadable(queries):
    """What Prometheus says about queries that it cannot read."""
    rules = [{"record": f"query:{index}", "expr": query.replace("$__rate_interval", "1m").replace("$instance", ".*")}
             for index, query in enumerate(queries)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        # JSON is YAML.
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        checked = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
    return checked.stdout + checked.stderr if checked.returncode else ""


def main():
    made = dashboard()
    text = json.dumps(made, indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        queries = list(every_query(made["panels"]))
        used = set(re.findall(r"(?:rebate|memcached|process)_[a-z0-9_]+", " ".join(queries)))
        known = types().keys() | families().keys()
        unknown = {name for name in used if re.sub(r"_bucket$", "", name) not in known}
        problems = [f"unknown metrics: {', '.join(sorted(unknown))}"] if unknown else []
        if not DASHBOARD.exists() or DASHBOARD.read_text(encoding="utf-8") != text:
            problems.append(f"{DASHBOARD.relative_to(ROOT)} is out of date: run scripts/dashboard.py")
        if shutil.which("promtool"):
            problems += filter(None, [unreadable(queries)])
        print("\n".join(problems) or f"{len(queries)} queries are up to date")
        return 1 if problems else 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    DASHBOARD.parent.mkdir(exist_ok=True)
    DASHBOARD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
