"""A gRPC server, and a client whose channels stay while the server ends and comes back: after each generation of calls it prints
what it got and waits for a line on its standard input; at last it prints calls a second.

Usage: grpc_restarts.py server PORT | client PORT GENERATIONS
"""
import concurrent.futures
import hashlib
import signal
import sys
import time

import grpc

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
CHANNELS = 4
PATIENCE = 30
LARGE = 5_000_000
port = int(sys.argv[2])


def pattern(size, seed):
    return hashlib.shake_128(str(seed).encode()).digest(size)


def digest(data):
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:16]}"


# The messages are bytes, so that nothing has to be generated.

def join(requests, _):
    return b"".join(requests)


def split(request, _):
    for begin in range(0, len(request), 100_000):
        yield request[begin:begin + 100_000]


def echo_all(requests, _):
    yield from requests


def fail(request, context):
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(request)} bytes")


def serve():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=OPTIONS)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Bytes", {
        "Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
        "Join": grpc.stream_unary_rpc_method_handler(join),
        "Split": grpc.unary_stream_rpc_method_handler(split),
        "EchoAll": grpc.stream_stream_rpc_method_handler(echo_all),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
    })])
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
    server.start()
    server.wait_for_termination()


class Client:
    def __init__(self):
        # Of one subchannel each: channels of the same options would share their connection.
        self.channels = [grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS + [("grpc.use_local_subchannel_pool", 1)])
                         for _ in range(CHANNELS)]

    def unary(self, channel, name, request):
        return self.channels[channel].unary_unary(f"/Bytes/{name}")(request, timeout=PATIENCE, wait_for_ready=True)

    def ask(self, channel, generation):
        """What all kinds of calls give on one channel; the first waits until there is a server."""
        found = [digest(self.unary(channel, "Echo", pattern(size, generation))) for size in (100, 0, LARGE)]
        parts = [pattern(size, channel) for size in (1, 100_000, 1_000_000)]
        found.append(digest(self.channels[channel].stream_unary("/Bytes/Join")(iter(parts), timeout=PATIENCE)))
        split_up = list(self.channels[channel].unary_stream("/Bytes/Split")(parts[-1], timeout=PATIENCE))
        found.append(f"{len(split_up)} parts, {digest(b''.join(split_up))}")
        echoed = self.channels[channel].stream_stream("/Bytes/EchoAll")((pattern(i, i) for i in range(300)), timeout=PATIENCE)
        found.append(f"{sum(part == pattern(i, i) for i, part in enumerate(echoed))} of 300")
        try:
            self.unary(channel, "Fail", b"xyz")
        except grpc.RpcError as error:
            found.append(f"{error.code()} {error.details()}")
        return found

    def open_stream(self, channel, end):
        """A call that is under way when the server ends; `end` tells its requests to."""
        def requests():
            yield b"first"
            end.result()

        stream = self.channels[channel].stream_stream("/Bytes/EchoAll")(requests(), timeout=PATIENCE)
        assert next(stream) == b"first"
        return stream

    def run(self, generations):
        with concurrent.futures.ThreadPoolExecutor(CHANNELS) as threads:
            for generation in range(generations):
                print(f"calls {generation}", flush=True)
                for found in threads.map(lambda channel: self.ask(channel, generation), range(CHANNELS)):
                    print(" ", found, flush=True)
                end = concurrent.futures.Future()
                streams = [self.open_stream(channel, end) for channel in range(CHANNELS)]
                print(f"generation {generation}", flush=True)
                for stream in streams:
                    try:
                        print("more than the first:", next(stream))
                    except grpc.RpcError as error:
                        print(" ", error.code(), flush=True)
                end.set_result(None)
                sys.stdin.readline()
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CHANNELS) as threads:
            list(threads.map(lambda channel: [self.unary(channel, "Echo", b"small") for _ in range(200)], range(CHANNELS)))
        print(CHANNELS * 200 / (time.monotonic() - begin))


if sys.argv[1] == "server":
    serve()
else:
    Client().run(int(sys.argv[3]))
