"""Runs our simulator, NeXosim and SimPy on the same M/M/8 queue in turns. Reports our events per second divided by
theirs: the median of the rounds' ratios, the least and the greatest. Needs `pip install simpy`. Takes `--runs N` and
`--json FILE`. Run it on an otherwise idle machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
OURS = ["cargo", "bench", "--quiet", "-p", "sim", "--bench", "events", "--", "--json"]
NEXOSIM = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(HERE / "nexosim/Cargo.toml"),
           "--target-dir", str(TOP / "target/rivals")]
SIMPY = [sys.executable, str(HERE / "mm8_simpy.py")]
# The criterion for the ratio to each rival's case, as the design requires it.
BARS = {"nexosim_station": 4, "nexosim_ports": 4, "simpy": 100}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the rows")
    args = parser.parse_args()
    rounds = [measure() for _ in range(args.runs)]
    rows = []
    for case in ("stations", "network"):
        for rival, bar in BARS.items():
            ratios = sorted(each[case] / each[rival] for each in rounds)
            rows.append({"id": f"events_per_second.{case}.over_{rival}.mm8", "value": statistics.median(ratios),
                         "low": ratios[0], "high": ratios[-1], "unit": "ratio", "runs": args.runs, "bar": bar})
    for name in rounds[0]:
        rates = sorted(each[name] for each in rounds)
        rows.append({"id": f"events_per_second.{name}.mm8", "value": statistics.median(rates), "low": rates[0],
                     "high": rates[-1], "unit": "1/s", "runs": args.runs, "bar": None})
    for row in rows:
        print(f"{row['id']:55} {row['value']:14.2f} ({row['low']:.2f} .. {row['high']:.2f})")
    if args.json:
        args.json.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def measure():
    """Returns the events per second of each case, by the middle part of the id of its row."""
    rates = {}
    for command in (OURS, NEXOSIM, SIMPY):
        done = subprocess.run(command, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True)
        rows = json.loads(done.stdout)["rows"] if command is OURS else map(json.loads, done.stdout.splitlines())
        for row in rows:
            rates[row["id"].split(".")[1]] = row["value"]
    return rates


main()
