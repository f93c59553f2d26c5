#!/usr/bin/env python3
"""Shows where the instructions of one offload go. It runs a case of the bench under callgrind with two lengths, so that
the start cancels out. It attributes each instruction to the innermost of our functions from which it was inlined.
Nothing is timed.

    cargo bench -p runtime --bench offload --no-run
    python3 runtime/benches/offload_stages.py target/release/deps/offload-HASH offload.core_loop.32_outstanding
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

# The numbers of jobs that `--count` sets.
SHORT, LONG = 1 << 12, 1 << 14

PLACEMENT = "placement: which devices, what the policy is told, the hand-over"
COMPLETION = "completion: each job of a poll looked at, its books closed"
STAGES = [
    (r"^policy/src/", r"", "policy"),
    (r"^device/src/", r"", "device, job and buffer"),
    (r"^runtime/benches/common/", r"", "device, job and buffer"),
    (r"^runtime/benches/offload", r"_alone", "device, job and buffer"),
    (r"^runtime/benches/", r"", "the task's own body"),
    (r"^runtime/src/metrics", r"", "metrics"),
    (r"^runtime/src/(entry|job_table)", r"", "books: opened, finished, claimed"),
    (r"^runtime/src/run\.rs", r"", "the future: submitted, polled twice"),
    (r"^runtime/src/core_loop/join", r"", "the task's own body"),
    (r"^runtime/src/(core_loop|tokio_adapter)", r"", "tasks: ready queue, poll, wake, passes"),
    (r"^runtime/src/core/(submit|decision_cache)", r"", PLACEMENT),
    (r"^runtime/src/core/complete", r"", COMPLETION),
    (r"^runtime/src/slot", r"submit|update|estimate|sample|accepts|ask|is_full|is_inline", PLACEMENT),
    (r"^runtime/src/slot", r"", COMPLETION),
    (r"^runtime/src/(time|history|costs)|^units/", r"", "clock, draws and history"),
    (r"^runtime/src/core", r"claim", "books: opened, finished, claimed"),
    (r"^runtime/src/core", r"admit|enter|is_limited|fallback", PLACEMENT),
    (r"^runtime/src/core", r"", COMPLETION),
    (r"/tokio-[0-9]", r"", "tokio's tasks"),
]
# Stages of library functions that were not inlined, by the name of the function.
BY_NAME = [
    (r"LocalKey|raw_waker|wake::HERE", "tasks: ready queue, poll, wake, passes"),
    (r"extend_trusted|device::", "device, job and buffer"),
    (r"[Dd]rain", COMPLETION),
]


def counts(binary, case, jobs):
    """Returns the number of instructions by (object file, address)."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no",
                   f"--callgrind-out-file={out}", binary, case, f"--count={jobs}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found, is_call, place = collections.Counter(), False, ""
        with open(out) as lines:
            for line in lines:
                if line.startswith("ob="):
                    place = line[3:].strip()
                elif line.startswith("calls="):
                    is_call = True
                elif line.startswith("0x"):
                    if not is_call:
                        address, _, cost = line.split()
                        found[place, int(address, 16)] += int(cost)
                    is_call = False
    return found


def frames(binary, addresses):
    """Returns for each address the functions from which it is inlined, innermost first, as (name, file)."""
    text = "\n".join(hex(address) for address in addresses)
    command = ["addr2line", "-a", "-f", "-C", "-i", "-e", binary]
    lines = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    found, at, own = {}, 0, None
    while at < len(lines):
        if lines[at].startswith("0x"):
            own = found.setdefault(int(lines[at], 16), [])
            at += 1
        else:
            own.append((lines[at], lines[at + 1].rsplit(":", 1)[0]))
            at += 2
    return found


def stage_of(chain, root):
    """Returns the stage of the innermost frame that belongs to a stage."""
    for name, path in chain:
        path = path[len(root):] if path.startswith(root) else path
        name = re.sub(r"^.*::(?=[a-z_]+)|<.*", "", name) if "{" not in name else name
        for pattern, names, stage in STAGES:
            if re.search(pattern, path) and re.search(names, name):
                return stage
    for pattern, stage in BY_NAME:
        if any(re.search(pattern, name) for name, _ in chain):
            return stage
    return None


def main():
    binary, case = sys.argv[1:3]
    root = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..")) + "/"
    short, long = counts(binary, case, SHORT), counts(binary, case, LONG)
    per_job = {key: (long[key] - short[key]) / (LONG - SHORT) for key in long}
    per_job = {key: count for key, count in per_job.items() if count > 0}
    own = os.path.realpath(binary)
    known = frames(binary, [address for place, address in per_job if os.path.realpath(place) == own])
    stages = collections.Counter()
    for (place, address), count in per_job.items():
        stage = stage_of(known.get(address, []), root) if os.path.realpath(place) == own else "system and C library"
        stages[stage or "what has no source"] += count
    for stage, count in stages.most_common():
        print(f"{count:8.1f}  {stage}")
    print(f"{sum(stages.values()):8.1f}  instructions per job")


main()
