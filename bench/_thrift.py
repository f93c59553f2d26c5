"""Provides the stock Thrift library to the benchmarks: the code that its compiler generates from rpc/idl, its Python
library, and programs of bench/rivals/thrift built with its C++ library. The module measures nothing. If something is
missing, the benchmark ends with status 0 and names the package that has it. In CI this is a failure, because everything
is installed there.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from harness import ROOT, SCRATCH, fail

RIVALS = ROOT / "bench" / "rivals" / "thrift"
# A folder for each benchmark, because several may run at once.
ROOM = SCRATCH / "thrift" / pathlib.Path(sys.argv[0]).stem
SERVICES = ["memcached", "post_storage", "unique_id"]


def skip(what):
    if "CI" in os.environ:
        fail(f"CI needs {what}")
    print(f"SKIPPED: this machine has no {what}")
    sys.exit(0)


def generated(language, options=""):
    """Returns the folder of the code that the stock compiler generates from our IDL."""
    if not shutil.which("thrift"):
        skip("Thrift compiler (Debian: apt-get install thrift-compiler)")
    folder = ROOM / f"gen-{language}"
    folder.mkdir(parents=True, exist_ok=True)
    for service in SERVICES:
        idl = ROOT / "rpc" / "idl" / f"{service}.thrift"
        done(["thrift", "--gen", language + options, "-out", folder, idl])
    return folder


def python():
    """Returns a Python that has the library, and the environment in which to run it."""
    for name in ["/usr/bin/python3", sys.executable]:
        if subprocess.run([name, "-c", "import thrift"], stderr=subprocess.DEVNULL).returncode == 0:
            path = f"{generated('py')}:{RIVALS}"
            return name, {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return skip("Python library of Thrift (Debian: apt-get install python3-thrift)")


def cpp(name, quick):
    """Builds a program of bench/rivals/thrift and returns its path. It is optimised like our release builds unless
    `quick` is set."""
    # The headers of the library include headers of Boost, but its package does not depend on Boost.
    headers = ["g++", "-fsyntax-only", "-x", "c++", "-include", "boost/scoped_array.hpp",
               "-include", "thrift/Thrift.h", "/dev/null"]
    if not shutil.which("g++") or subprocess.run(headers, capture_output=True).returncode:
        skip("C++ library of Thrift (Debian: apt-get install g++ libthrift-dev libboost-dev)")
    code = generated("cpp", ":templates,no_skeleton")
    source = RIVALS / f"{name}.cpp"
    program = ROOM / f"{name}{'-quick' if quick else ''}"
    newest = max(path.stat().st_mtime for path in [source, *(ROOT / "rpc" / "idl").iterdir()])
    if not program.exists() or program.stat().st_mtime < newest:
        optimise = "-O0" if quick else "-O3"
        # The generated code has parameters that it does not use.
        warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-variable"]
        done(["g++", "-std=c++17", optimise, *warnings, "-pthread", f"-I{code}", source,
              "-o", program, "-lthrift"])
    return program


def done(command):
    """Runs a command that must succeed, and returns its output."""
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode:
        fail(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def example(name, quick):
    """Builds an example of the crate `rpc` and returns its path. With `quick` it is the debug build that the tests
    also use."""
    release = [] if quick else ["--release"]
    # A build of the whole workspace uses the dependencies that are already built.
    build = ["cargo", "build", "--quiet", "--workspace", "--example", name, *release]
    if subprocess.run(build, cwd=ROOT).returncode:
        fail(f"cannot build rpc/examples/{name}.rs")
    return ROOT / "target" / ("debug" if quick else "release") / "examples" / name


def messages():
    """Returns a folder of messages that the stock Python library wrote."""
    program, environment = python()
    folder = pathlib.Path(ROOM / "messages")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ran = subprocess.run([program, RIVALS / "messages.py", folder], env=environment)
    if ran.returncode:
        fail("the stock library wrote no messages")
    return folder
