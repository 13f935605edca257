"""A replying ZeroMQ server on port argv[2], and its client, which prints what it gets and requests a second."""
import hashlib
import sys
import time

import zmq

context = zmq.Context()
address = f"tcp://127.0.0.1:{sys.argv[2]}"

if sys.argv[1] == "server":
    replies = context.socket(zmq.ROUTER)
    replies.bind(address)
    while True:
        identity, empty, *parts = replies.recv_multipart()
        replies.send_multipart([identity, empty, b"hello", *parts])

sockets = []
for _ in range(10):
    request = context.socket(zmq.REQ)
    request.connect(address)
    sockets.append(request)
for number, request in enumerate(sockets):
    request.send_multipart([b"%d" % number, hashlib.shake_128(b"%d" % number).digest(300_000)])
for request in sockets:
    hello, number, data = request.recv_multipart()
    print(hello, number, hashlib.sha256(data).hexdigest())
start = time.monotonic()
for i in range(2000):
    sockets[0].send(b"%d" % i)
    assert sockets[0].recv_multipart() == [b"hello", b"%d" % i]
print(2000 / (time.monotonic() - start))
