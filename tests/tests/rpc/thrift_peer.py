"""The stock Thrift library at the other end. It needs the code that the stock compiler makes of rpc/idl, on PYTHONPATH.

Usage: thrift_peer.py serve SERVICE           a server of the stock library; prints `listening on HOST:PORT`
       thrift_peer.py ask SERVICE HOST:PORT   a table of calls; prints each call's answer as a line
"""

import sys
import threading

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.Thrift import TApplicationException
from thrift.transport import TSocket, TTransport

from rebate.ids import UniqueIdService
from rebate.memcached import Memcached
from rebate.memcached.ttypes import CacheError, Found
from rebate.posts import PostStorageService
from rebate.posts.ttypes import Creator, Media, Post, ServiceException, Url, UserMention

SERVICES = {"memcached": Memcached, "post-storage": PostStorageService, "unique-id": UniqueIdService}


class Cache:
    def __init__(self):
        self.items = {}

    def Set(self, key, value, flags, expiry_s):
        if not 1 <= len(key) <= 250:
            raise CacheError(f"a key has 1 to 250 bytes, not {len(key)}")
        self.items[key] = (value, flags or 0)

    def Get(self, key):
        value, flags = self.items.get(key, (None, None))
        return Found(hit=value is not None, value=value, flags=flags)


class Posts:
    def __init__(self):
        self.posts = {}

    def StorePost(self, req_id, post, carrier):
        if post.post_id is None:
            raise ServiceException(507, "the post has no post_id")
        self.posts[post.post_id] = post

    def ReadPost(self, req_id, post_id, carrier):
        if post_id not in self.posts:
            raise ServiceException(404, f"no post {post_id}")
        return self.posts[post_id]

    def ReadPosts(self, req_id, post_ids, carrier):
        return [self.ReadPost(req_id, post_id, carrier) for post_id in post_ids or []]


class Ids:
    def __init__(self):
        self.lock, self.last = threading.Lock(), 0

    def ComposeUniqueId(self, req_id, post_type, carrier):
        with self.lock:
            self.last += 1
            return self.last


HANDLERS = {"memcached": Cache, "post-storage": Posts, "unique-id": Ids}


def serve(service):
    processor = SERVICES[service].Processor(HANDLERS[service]())
    socket = TSocket.TServerSocket("127.0.0.1", 0)
    socket.listen()
    host, port = socket.handle.getsockname()[:2]
    socket.listen = lambda: None
    print(f"listening on {host}:{port}", flush=True)
    framed, binary = TTransport.TFramedTransportFactory(), TBinaryProtocolFactory()
    TThreadedServer(processor, socket, framed, binary, daemon=True).serve()


def connected(address, *services):
    host, port = address.rsplit(":", 1)
    transport = TTransport.TFramedTransport(TSocket.TSocket(host, int(port)))
    transport.open()
    return [service.Client(TBinaryProtocol(transport)) for service in services]


def answer(call):
    try:
        return repr(call())
    except TApplicationException as error:
        return f"application exception {error.type}"
    except (CacheError, ServiceException) as error:
        return repr(error)


def posts():
    """Posts with everything, with nothing, and with what is empty."""
    full = Post(
        post_id=-7,
        creator=Creator(user_id=1 << 62, username="Zoë"),
        req_id=3,
        text="text \u2603" * 40,
        user_mentions=[UserMention(user_id=n, username=f"user {n}") for n in range(5)],
        media=[Media(media_id=1, kind=0), Media(media_id=2, kind=1)],
        urls=[Url(shortened="s", expanded="e" * 300), Url()],
        timestamp=1 << 40,
        post_type=2,
    )
    empty = Post(post_id=9, creator=Creator(), text="", user_mentions=[], media=[], urls=[])
    return [full, Post(post_id=8), empty, Post(text="nameless")]


def table(service, address):
    cache, storage, ids = connected(address, *SERVICES.values())
    if service == "memcached":
        values = [b"", b"a", bytes(range(256)) * 40, b"\0" * 100_000]
        for number, value in enumerate(values):
            for key in [b"k%d" % number, bytes([0, 255, number])]:
                yield lambda: cache.Set(key, value, -number, 0)
                yield lambda: cache.Get(key)
        yield lambda: cache.Set(b"k0", b"other", None, None)
        yield lambda: cache.Get(b"k0")
        yield lambda: cache.Get(b"never")
        yield lambda: cache.Set(b"", b"value", 0, 0)
        yield lambda: cache.Set(b"k" * 251, b"value", 0, 0)
        yield lambda: storage.ReadPost(1, 2, {})
        yield lambda: cache.Get(b"k1")
    elif service == "post-storage":
        for post in posts():
            yield lambda: storage.StorePost(1, post, {"trace": "1", "": ""})
            yield lambda: storage.ReadPost(2, post.post_id or 0, None)
        yield lambda: storage.ReadPosts(3, [-7, 8, 9, 8], {})
        yield lambda: storage.ReadPosts(3, [], {})
        yield lambda: storage.ReadPosts(3, None, {})
        yield lambda: storage.ReadPosts(3, [8, 1000], {})
        yield lambda: ids.ComposeUniqueId(1, 0, {})
        yield lambda: storage.ReadPost(2, 8, {"again": "yes"})
    else:
        numbers = [ids.ComposeUniqueId(n, n % 4, {"n": str(n)}) for n in range(500)]
        yield lambda: numbers == sorted(set(numbers))
        yield lambda: type(ids.ComposeUniqueId(None, None, None))
        yield lambda: cache.Get(b"key")


def main():
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    for call in table(sys.argv[2], sys.argv[3]):
        print(answer(call))


main()
