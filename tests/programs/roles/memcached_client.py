"""Talks memcached's text protocol to port argv[1]; prints digests, then how many operations a second there were."""
import hashlib
import socket
import sys
import time


def pattern(size, seed):
    return hashlib.shake_128(str(seed).encode()).digest(size)


def receive(stream, count):
    """The values of `count` answers, each a value."""
    found = hashlib.sha256()
    for _ in range(count):
        header = stream.readline().split()
        size = int(header[3])
        found.update(header[1] + stream.read(size))
        assert stream.read(2) == b"\r\n"
    assert stream.readline() == b"END\r\n"
    return found.hexdigest()


connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(20)]
streams = [connection.makefile("rwb") for connection in connections]
first = streams[0]
for size in (0, 1, 100, 5000, 100_000, 3_000_000):
    first.write(b"set size%d 0 0 %d\r\n%s\r\n" % (size, size, pattern(size, size)))
    first.flush()
    print(size, first.readline())
    first.write(b"get size%d\r\n" % size)
    first.flush()
    print(receive(first, 1))

for number, stream in enumerate(streams):
    for i in range(100):
        stream.write(b"set key%d-%d 0 0 200 noreply\r\n%s\r\n" % (number, i, pattern(200, i)))
    stream.write(b"get %s\r\n" % b" ".join(b"key%d-%d" % (number, i) for i in range(100)))
    stream.flush()
print([receive(stream, 100) for stream in streams])

start = time.monotonic()
for i in range(3000):
    first.write(b"set speed 0 0 100\r\n%s\r\nget speed\r\n" % pattern(100, i))
    first.flush()
    assert first.readline() == b"STORED\r\n"
    receive(first, 1)
first.write(b"incr nothing 1\r\nquit\r\n")
first.flush()
print(first.readline(), first.read())
print(6000 / (time.monotonic() - start))
