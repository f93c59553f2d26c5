"""Stores through a front with pymemcache, and finds the keys with libmemcached's own ring over the servers behind it.
With `-` as the front, the keys are there already.

Usage: ring.py FRONT SERVER,SERVER,... [BEHAVIOR]
"""

import sys

import pylibmc
from pymemcache.client.base import Client

# A server that is well may be silent for seconds where the host takes its core away.
LIMIT_S = 60


def main(front, servers, behavior="ketama"):
    ours = None
    if front != "-":
        host, port = front.rsplit(":", 1)
        ours = Client((host, int(port)), timeout=LIMIT_S)
    behaviors = {behavior: True, "connect_timeout": LIMIT_S * 1000, "_poll_timeout": LIMIT_S * 1000}
    theirs = pylibmc.Client(servers, binary=False, behaviors=behaviors)
    for number in range(500):
        key = f"ring_{number}_{number * 7919}"
        if ours and not ours.set(key, key.encode(), noreply=False):
            sys.exit(f"{key} is not stored")
        found = theirs.get(key)
        if found != key.encode():
            sys.exit(f"libmemcached finds {found!r} under {key}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), *sys.argv[3:])
