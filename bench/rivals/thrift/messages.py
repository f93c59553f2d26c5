"""Writes messages of the three services as the stock Thrift library makes them. Each file has one message without a
frame.

Usage: messages.py FOLDER, with the code that the stock compiler generates from rpc/idl on PYTHONPATH. A file's name is
SERVICE.FUNCTION.KIND.WHAT, and KIND is call or reply.
"""

import pathlib
import sys

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from rebate.ids import UniqueIdService
from rebate.memcached import Memcached
from rebate.memcached.ttypes import Found
from rebate.posts import PostStorageService
from rebate.posts.ttypes import Creator, Media, Post, Url, UserMention

SERVICES = {"memcached": Memcached, "post_storage": PostStorageService,
            "unique_id": UniqueIdService}
KINDS = {"call": (TMessageType.CALL, "args"), "reply": (TMessageType.REPLY, "result")}
CARRIER = {"sampled": "1", "trace": "2f1c9d5e88aa01b7"}
SHAPES = {"k8_v8": (8, 8), "k16_v32": (16, 32), "k16_v1024": (16, 1024)}


def post(number):
    return Post(
        post_id=number,
        creator=Creator(user_id=77, username="somebody"),
        req_id=1 << 33,
        text="words " * 23,
        user_mentions=[UserMention(user_id=n, username=f"user_{n}") for n in range(2)],
        media=[Media(media_id=5, kind=0)],
        urls=[Url(shortened=f"http://short/{n:07}", expanded="http://expanded/" + "u" * 44)
              for n in range(2)],
        timestamp=1 << 40,
        post_type=0,
    )


def messages():
    """Yields (service, function, kind, what, fields) for each message."""
    for shape, (key_bytes, value_bytes) in SHAPES.items():
        key, value = b"k" * key_bytes, b"v" * value_bytes
        stored = {"key": key, "value": value, "flags": 0, "expiry_s": 0}
        yield "memcached", "Set", "call", shape, stored
        found = {"success": Found(hit=True, value=value, flags=0)}
        yield "memcached", "Get", "reply", shape, found
    for shape in ["k8", "k16"]:
        yield "memcached", "Get", "call", shape, {"key": b"k" * int(shape[1:])}
    yield "memcached", "Set", "reply", "stored", {}
    asked = {"req_id": 1 << 33, "carrier": CARRIER}
    storage = "post_storage"
    yield storage, "StorePost", "call", "one", {**asked, "post": post(3)}
    yield storage, "StorePost", "reply", "stored", {}
    yield storage, "ReadPost", "call", "one", {**asked, "post_id": 3}
    yield storage, "ReadPost", "reply", "one", {"success": post(3)}
    yield storage, "ReadPosts", "call", "ten", {**asked, "post_ids": list(range(10))}
    yield storage, "ReadPosts", "reply", "ten", {"success": [post(n) for n in range(10)]}
    yield "unique_id", "ComposeUniqueId", "call", "one", {**asked, "post_type": 0}
    yield "unique_id", "ComposeUniqueId", "reply", "one", {"success": 1 << 60}


def main():
    folder = pathlib.Path(sys.argv[1])
    for service, function, kind, what, fields in messages():
        number, struct = KINDS[kind]
        buffer = TMemoryBuffer()
        protocol = TBinaryProtocol(buffer)
        protocol.writeMessageBegin(function, number, 7)
        getattr(SERVICES[service], f"{function}_{struct}")(**fields).write(protocol)
        protocol.writeMessageEnd()
        (folder / f"{service}.{function}.{kind}.{what}").write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
