"""Reads or writes pages with the stock library. A page is a record, and every hundredth has many of them.

Usage: pages.py read|write HOST:PORT COUNT
"""

import sys

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from rebate.memcached import Memcached

WAY, ADDRESS, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
host, port = ADDRESS.rsplit(":", 1)
transport = TTransport.TFramedTransport(TSocket.TSocket(host, int(port)))
transport.open()
cache = Memcached.Client(TBinaryProtocol(transport))


def page(number):
    identity, user, day = number * 7919 % 999983, number * 104729 % 9999991, 1 + number % 28
    user = f'{{"id":{user},"plan":"team"}}'
    part = f'{{"id":{identity},"type":"order","user":{user},"created":"2026-01-{day:02}"}}'
    return (part * (number if number % 100 == 99 else 1)).encode()


keys = [b"page:%d" % number for number in range(COUNT)]
if WAY == "write":
    for number, key in enumerate(keys):
        cache.Set(key, page(number), number, 0)
else:
    for number, key in enumerate(keys):
        found = cache.Gets(key)
        assert (found.value, found.flags) == (page(number), number), number
    many = cache.GetMany(keys)
    assert {key: item.value for key, item in many.items()} == {key: page(n) for n, key in enumerate(keys)}
print(f"{COUNT} pages")
