#!/usr/bin/env python3
"""Runs a program under valgrind's memcheck: fails with status 9 on invalid memory accesses and leaks.

Usage: valgrind.py PROGRAM [ARGUMENT...]      on x86-64 Linux; Debian: apt-get install valgrind
       valgrind.py --tool=TOOL [FLAG...] PROGRAM [ARGUMENT...]      with another of valgrind's tools

Possible losses are not counted. They are blocks that threads of the standard library hold until the process ends.

From Linux 6.4 on a program can ask the kernel for the addresses of some of its pages (PR_GET_AUXV). valgrind passes the
call to the kernel although it has moved these pages, and rustix would then read from invalid addresses. So this script
makes the call fail, as it does on older kernels.
"""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_GET_AUXV = 22, 38, 0x41555856
SYS_PRCTL, SECCOMP_MODE_FILTER = 157, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
INVALID, ALLOW = 0x0005_0016, 0x7FFF_0000

STEPS = [
    (LOAD, 0, 0, 0),  # the system call's number
    (JUMP_IF_EQUAL, 0, 3, SYS_PRCTL),
    (LOAD, 0, 0, 16),  # its first argument
    (JUMP_IF_EQUAL, 0, 1, PR_GET_AUXV),
    (RETURN, 0, 0, INVALID),
    (RETURN, 0, 0, ALLOW),
]

MEMCHECK = [
    "--leak-check=full",
    "--show-leak-kinds=definite,indirect",
    "--errors-for-leak-kinds=definite,indirect",
    "--error-exitcode=9",
]


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


def refuse_auxv():
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in STEPS))
    own = Filter(len(STEPS), ctypes.addressof(steps))
    libc = ctypes.CDLL(None, use_errno=True)
    calls = [(PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(own))]
    for option, first, second in calls:
        if libc.prctl(option, first, second, 0, 0) != 0:
            sys.exit(f"valgrind.py: prctl({option}): {os.strerror(ctypes.get_errno())}")


if len(sys.argv) < 2:
    sys.exit(__doc__)
arguments = sys.argv[1:]
if not arguments[0].startswith("--tool="):
    arguments = MEMCHECK + arguments
refuse_auxv()
try:
    # Without fair scheduling a thread that never waits keeps all others from running.
    os.execvp("valgrind", ["valgrind", "--fair-sched=yes", *arguments])
except FileNotFoundError:
    sys.exit("valgrind.py: valgrind is missing (Debian: apt-get install valgrind)")
