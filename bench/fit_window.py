#!/usr/bin/env python3
"""Fits the inputs of the scenario `window` to the thirteen means that decision 0018 names. It tries the inputs in
the scenario's file and random points. Then it takes random steps from the best point, which become smaller if no
step improves it. Every point is a run of `rebate sim --spec window`. The script prints the best point so far. The
last line belongs into specs/sim/accelflow-window.toml. Build first: `cargo build --release -p cli`.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import tomllib

TOP = pathlib.Path(__file__).resolve().parent.parent
# Each key has the least and the greatest value. Points are drawn between them, evenly on a logarithmic scale.
INPUTS = {
    "load.total_per_s": (20_000, 120_000),
    "run.window_us": (10_000, 60_000),
    "costs.manager_ns": (100, 2_500),
    "costs.manager_branch_ns": (50, 2_500),
    "costs.manager_transform_ns": (50, 2_500),
    "costs.interrupt_ns": (1_000, 60_000),
    "costs.cohort_ns": (1_000, 60_000),
}
# A large payload costs the manager as much as a transform.
TIED = {"costs.manager_transform_ns": "costs.manager_large_ns"}
ARCHITECTURES = ["non-acc", "cpu-centric", "relief", "cohort", "per-type-queues", "direct", "control-flow", "accelflow"]
RUNS, SEED = 5, 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300, help="points drawn at random (300)")
    parser.add_argument("--steps", type=int, default=500, help="points near the best (500)")
    parser.add_argument("--at-once", type=int, default=2, help="points simulated at once (2)")
    parser.add_argument("--rebate", default=os.environ.get("REBATE_BINARY", str(TOP / "target/release/rebate")),
                        help="the binary (REBATE_BINARY, else target/release/rebate)")
    parser.add_argument("--quick", action="store_true", help="two small points: to see that it works")
    args = parser.parse_args()
    if args.quick:
        args.draws, args.steps = 1, 1
        INPUTS.update({"load.total_per_s": (20_000, 20_001), "run.window_us": (10_000, 10_001)})
    targets = published()
    prng = random.Random(SEED)
    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        def tried(points):
            return zip(pool.map(lambda point: error(args.rebate, point, targets), points), points)

        best = better((math.inf, None), tried([] if args.quick else [filed()]))
        for count in batches(args.draws):
            best = better(best, tried([drawn(prng) for _ in range(count)]))
        if best[1] is None:
            parser.error(f"no point could be simulated by {args.rebate}")
        reach = 0.3
        for count in batches(args.steps):
            found = better(best, tried([near(best[1], reach, prng) for _ in range(count)]))
            reach = reach if found[0] < best[0] else max(reach * 0.85, 0.02)
            best = found
    print(json.dumps({"error": best[0], **whole(best[1])}))


def batches(count):
    """Splits `count` points into batches of at most `BATCH` points."""
    return [min(BATCH, count - at) for at in range(0, count, BATCH)]


def published():
    """Returns the thirteen means (ms) by (statistic, architecture)."""
    figures = tomllib.loads((TOP / "specs/sim/accelflow-published.toml").read_text())
    rows = [("mean", "mean_ms"), ("p99", "ablation_ms"), ("p99", "p99_ms")]
    return {(what, name): value for what, table in rows
            for name, value in zip(figures[table]["columns"], figures[table]["mean"])}


def filed():
    """Returns the inputs that the scenario's file has now."""
    spec = tomllib.loads((TOP / "specs/sim/accelflow-window.toml").read_text())
    return {key: spec[key.split(".")[0]][key.split(".")[1]]["value"] for key in INPUTS}


def drawn(prng):
    return {key: low * (high / low) ** prng.random() for key, (low, high) in INPUTS.items()}


def near(point, reach, prng):
    """Returns a point near `point`. Some inputs change by up to about the fraction `reach`."""
    changed = [key for key in INPUTS if prng.random() < 0.5] or [prng.choice(list(INPUTS))]
    return {key: min(max(value * math.exp(prng.gauss(0, reach)), INPUTS[key][0]), INPUTS[key][1])
            if key in changed else value for key, value in point.items()}


def whole(point):
    """Returns the point as the scenario's file has it, with three digits per number."""
    keys = {key: float(f"{value:.3g}") for key, value in point.items()}
    keys |= {other: keys[key] for key, other in TIED.items()}
    return {key: int(value) for key, value in keys.items()}


def better(best, tried):
    for found in tried:
        if found[0] < best[0]:
            best = found
            print(f"{best[0]:.4f} {whole(best[1])}", flush=True)
    return best


def error(rebate, point, targets):
    """Returns the mean square of ln(simulated / published). It is infinite if the point cannot be simulated."""
    sets = [f"--set={key}={value}" for key, value in whole(point).items()]
    command = [rebate, "sim", "--spec", "window", "--json", "--threads", "1", f"--runs={RUNS}", f"--seed={SEED}",
               f"--architecture={','.join(ARCHITECTURES)}", *sets]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return math.inf
    try:
        found = means(json.loads(done.stdout))
    except (KeyError, TypeError):
        return math.inf
    return statistics.fmean(math.log(found[at] / value) ** 2 for at, value in targets.items())


def means(answer):
    """Returns the means of the services (ms) by (statistic, architecture)."""
    of = {each["architecture"]: each["all"] for each in answer["results"][0]["architectures"]}
    return {(what, name): own[f"{what}_ns"]["value"] / 1e6 for name, own in of.items() for what in ("mean", "p99")}


# The number of points between two selections of the best one.
BATCH = 20


main()
