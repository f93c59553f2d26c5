"""Calls every function of a cache's Thrift listener with the stock library, and prints each answer as a line. Needs the
code that the stock compiler makes of rpc/idl/memcached.thrift on PYTHONPATH.

Usage: client.py HOST:PORT
"""

import sys

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException
from thrift.transport import TSocket, TTransport

from rebate.memcached import Memcached
from rebate.memcached.ttypes import CacheError, ErrorCode, Outcome


def connected(address):
    host, port = address.rsplit(":", 1)
    transport = TTransport.TFramedTransport(TSocket.TSocket(host, int(port)))
    transport.open()
    return Memcached.Client(TBinaryProtocol(transport))


def shown(item):
    value = item.value if item.value is None or len(item.value) < 20 else f"{len(item.value)} bytes"
    return f"hit={item.hit} value={value} flags={item.flags}"


def failure(call):
    try:
        return f"no failure: {call()}"
    except CacheError as error:
        return f"{ErrorCode._VALUES_TO_NAMES[error.code]}: {error.message}"
    except TApplicationException as error:
        return f"application exception {error.type}: {error.message}"


def outcome(stored):
    return Outcome._VALUES_TO_NAMES[stored.outcome]


def calls(cache):
    yield "version", bool(cache.Version())
    yield "get", shown(cache.Get(b"missing"))
    yield "gets", shown(cache.Gets(b"missing"))
    yield "set", cache.Set(b"key", b"value", 7, 0)
    yield "get", shown(cache.Get(b"key"))
    yield "gets", shown(cache.Gets(b"key"))
    yield "add", outcome(cache.Add(b"key", b"other", 0, 0))
    yield "add", outcome(cache.Add(b"new", b"value", 0, 0))
    yield "replace", outcome(cache.Replace(b"none", b"value", 0, 0))
    yield "replace", outcome(cache.Replace(b"new", b"middle", 1, 0))
    yield "append", outcome(cache.Append(b"new", b" end"))
    yield "prepend", outcome(cache.Prepend(b"new", b"start "))
    yield "append", outcome(cache.Append(b"none", b"x"))
    yield "get", shown(cache.Get(b"new"))
    cas = cache.Gets(b"key").cas
    stored = cache.Cas(b"key", b"swapped", 2, 0, cas)
    yield "cas", outcome(stored)
    yield "cas of the answer", stored.cas == cache.Gets(b"key").cas
    yield "cas", outcome(cache.Cas(b"key", b"again", 2, 0, cas))
    yield "cas", outcome(cache.Cas(b"key", b"again", 2, 0, 0))
    yield "cas", outcome(cache.Cas(b"none", b"again", 2, 0, cas))
    many = cache.GetMany([b"key", b"none", b"new", b"key"])
    yield "get many", {key: shown(item) for key, item in sorted(many.items())}
    yield "get many", cache.GetMany([])
    yield "get and touch", shown(cache.GetAndTouch(b"key", 100))
    yield "touch", cache.Touch(b"key", 0)
    yield "touch", cache.Touch(b"none", 0)
    yield "set", cache.Set(b"gone", b"value", 0, -1)
    yield "get", shown(cache.Get(b"gone"))
    yield "delete", cache.Delete(b"new")
    yield "delete", cache.Delete(b"new")
    yield "set", cache.Set(b"number", b"10", 0, 0)
    yield "increment", cache.Increment(b"number", 5).value
    yield "decrement", cache.Decrement(b"number", 100).value
    yield "increment", cache.Increment(b"none", 1).hit
    yield "increment", failure(lambda: cache.Increment(b"key", 1))
    yield "increment", failure(lambda: cache.Increment(b"number", -1))
    yield "without arguments", cache.Set(b"plain", b"v", None, None)
    yield "set", failure(lambda: cache.Set(b"", b"v", 0, 0))
    yield "set", failure(lambda: cache.Set(b"k" * 251, b"v", 0, 0))
    yield "get", failure(lambda: cache.Get(b"k" * 251))
    yield "get many", failure(lambda: cache.GetMany([b"key", b""]))
    for length in [100_000, 1 << 20, 3 << 20]:
        yield f"set {length}", failure(lambda: cache.Set(b"key", b"v" * length, 0, 0))
        yield "get", shown(cache.Get(b"key"))
    yield "add", failure(lambda: cache.Add(b"large", b"v" * (2 << 20), 0, 0))
    yield "get", failure(lambda: cache.Get(None))
    yield "binary", cache.Set(b"\x00 \xff", bytes(range(256)), 0, 0)
    yield "binary", cache.Get(b"\x00 \xff").value == bytes(range(256))
    yield "binary", sorted(cache.GetMany([b"\x00 \xff", b"plain", b"\x01"]))
    yield "stats", cache.Stats(None)["curr_connections"] != ""
    yield "stats", failure(lambda: cache.Stats("no such page"))
    yield "flush", cache.FlushAll(None)
    yield "get", shown(cache.Get(b"plain"))


def main():
    for name, answer in calls(connected(sys.argv[1])):
        print(f"{name}: {answer}")


main()
