#!/usr/bin/env python3
"""Measures the time to deserialize a message of the RPC engine's three services, beside the stock Thrift library.

The stock Python library writes the messages. They are the same bytes for every side, in memory, 32 in a buffer. Each
side reads header and fields, and ours also looks up the function. First each side writes again what it has read, which
must give the same bytes. The sides take turns for each message:
- generated: the functions that our generator makes from the IDL, into a flat record. table: our interpreter of the IDL.
- templates: C++, generated for the concrete protocol and transport, into one reused object. It is the library's fastest
  form.
- processor: C++ as in the library's generated servers, with virtual protocols and a new object for each message.
- accelerated, plain: the two binary protocols of Python. The first reads structs in C, the second reads all in Python.
Criteria for each kind of message: ours is at least 5 times as fast as accelerated, and no slower than templates.
With --count nothing is timed. The rows are then instructions per message of ours and of C++, counted by valgrind, which
other work on the machine does not change.
Needs Debian's libthrift-dev, libboost-dev, thrift-compiler and python3-thrift.
"""

import re
import subprocess

import _thrift
from harness import Bench, fail, ratios, turns

SIDES = {"generated": "rust", "table": "rust", "templates": "cpp", "processor": "cpp",
         "accelerated": "python", "plain": "python"}
SLICE_NS, QUICK_SLICE_NS = 20_000_000, 200_000
COPIES = 32
PYTHON_TIMES_MIN = 5


class Side:
    """A running program that reads messages."""

    def __init__(self, command, environment=None):
        self.child = subprocess.Popen(command, env=environment, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, variant, message, rounds):
        print(variant, message, rounds, file=self.child.stdin, flush=True)
        answer = self.child.stdout.readline().strip()
        if not answer:
            fail(f"{variant} ended at {message}")
        return answer

    def time_ns(self, variant, message, slice_ns):
        """Returns the time of a message (ns), measured for `slice_ns`. A short first measurement determines the
        number of rounds."""
        first = float(self.ask(variant, message, 2))
        return float(self.ask(variant, message, max(1, int(slice_ns / (first * COPIES)))))

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def main():
    bench = Bench("rpc_deserialize", __doc__, flags=flags, runs=9)
    program, environment = _thrift.python()
    native = _thrift.cpp("deserialize", bench.quick)
    ours = _thrift.example("deserialize", bench.quick)
    folder = _thrift.messages()
    messages = sorted(path.name for path in folder.iterdir())
    if bench.flags.count:
        return count(bench, messages, {"rust": [ours, folder], "cpp": [native, folder]})
    sides = {"rust": Side([ours, folder]), "cpp": Side([native, folder]),
             "python": Side([program, _thrift.RIVALS / "deserialize.py", folder], environment)}
    same_bytes(sides, folder, messages)
    found = {(message, variant): [] for message in messages for variant in SIDES}
    for run in bench.each_run():
        for message in messages:
            for variant in turns(list(SIDES), run):
                slice_ns = QUICK_SLICE_NS if bench.quick else SLICE_NS
                time_ns = sides[SIDES[variant]].time_ns(variant, message, slice_ns)
                found[message, variant].append(time_ns)
    for side in sides.values():
        side.end()
    report(bench, folder, messages, found)


def same_bytes(sides, folder, messages):
    for message in messages:
        written = (folder / message).read_bytes().hex()
        for variant, side in SIDES.items():
            if sides[side].ask(variant, message, 0) != written:
                fail(f"{variant} reads {message} and writes something else")


def count(bench, messages, commands):
    """Adds the instructions per message. Two runs, the second twice as long, are compared, so that the start cancels
    out."""
    rounds = 50
    for message in messages:
        of = {}
        for variant in [name for name, side in SIDES.items() if side in commands]:
            short, long = (instructions(commands[SIDES[variant]], f"{variant} {message} {number}")
                           for number in [rounds, 2 * rounds])
            of[variant] = (long - short) / (rounds * COPIES)
            what = f"{message}: {variant}"
            bench.row(f"instructions.{message}.{variant}", what, [of[variant]], "1")
        bench.row(f"instructions.over_cpp.{message}", f"{message}: ours over C++'s templates",
                  [of["generated"] / of["templates"]], "ratio")
    bench.finish()


def instructions(command, line):
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    try:
        ran = subprocess.run(valgrind, input=line, capture_output=True, text=True)
    except FileNotFoundError:
        fail("--count needs valgrind (Debian: apt-get install valgrind)")
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode or not found:
        fail(f"valgrind failed on {line}\n{ran.stderr}")
    return int(found[1])


def flags(parser):
    parser.add_argument("--count", action="store_true",
                        help="count instructions instead of timing (needs valgrind)")


def report(bench, folder, messages, found):
    for message in messages:
        for variant in SIDES:
            what = f"{message}, {(folder / message).stat().st_size} B: {variant}"
            bench.row(f"deserialize.{message}.{variant}", what, found[message, variant], "ns")
    for message in messages:
        of = {variant: found[message, variant] for variant in SIDES}
        bench.row(f"over_python.{message}", f"{message}: Python's accelerated over ours",
                  ratios(of["accelerated"], of["generated"]), "times", at_least=PYTHON_TIMES_MIN)
        bench.row(f"over_cpp.{message}", f"{message}: ours over C++'s templates",
                  ratios(of["generated"], of["templates"]), "ratio", at_most=1)
        bench.row(f"over_table.{message}", f"{message}: our table over our generated",
                  ratios(of["table"], of["generated"]), "times")
    bench.finish()


if __name__ == "__main__":
    main()
