"""Reads recorded messages with the stock Python library and reports the time. This is one side of rpc_deserialize.py.

Usage: deserialize.py FOLDER, with the code that the stock compiler generates from rpc/idl on PYTHONPATH. A line on
standard input is `VARIANT FILE ROUNDS`. The answer is the nanoseconds per message. If ROUNDS is 0, the answer is the
message written again, in hexadecimal.
The variants are the library's two binary protocols: `plain`, and `accelerated`, which reads structs in C.
"""

import pathlib
import sys
import time

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from messages import KINDS, SERVICES

# The number of messages in a buffer, which is the same for all sides.
COPIES = 32
PROTOCOLS = {
    "plain": TBinaryProtocol,
    "accelerated": lambda transport: TBinaryProtocolAccelerated(transport, fallback=False),
}


def read(protocol, struct):
    head = protocol.readMessageBegin()
    message = struct()
    message.read(protocol)
    protocol.readMessageEnd()
    return head, message


def time_ns(protocol, struct, message, rounds):
    stream = message * COPIES
    begun = time.perf_counter_ns()
    for _ in range(rounds):
        source = protocol(TMemoryBuffer(stream))
        for _ in range(COPIES):
            read(source, struct)
    return (time.perf_counter_ns() - begun) / (rounds * COPIES)


def written_again(protocol, struct, message):
    head, found = read(protocol(TMemoryBuffer(message)), struct)
    buffer = TMemoryBuffer()
    again = TBinaryProtocol(buffer)
    again.writeMessageBegin(*head)
    found.write(again)
    again.writeMessageEnd()
    return buffer.getvalue().hex()


def main():
    folder = pathlib.Path(sys.argv[1])
    for line in sys.stdin:
        variant, file, rounds = line.split()
        service, function, kind, _ = file.split(".")
        struct = getattr(SERVICES[service], f"{function}_{KINDS[kind][1]}")
        message, rounds = (folder / file).read_bytes(), int(rounds)
        asked = PROTOCOLS[variant], struct, message
        print(time_ns(*asked, rounds) if rounds else written_again(*asked), flush=True)


if __name__ == "__main__":
    main()
