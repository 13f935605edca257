"""Boost.Asio: threads that share one reactor, which learns of the listener before it listens, and of the first sockets while a thread
sleeps in it; several messages of a connection in both directions at once, timers beside them."""
import harness

PROGRAM = harness.built("asio_echo")
NEEDS = [PROGRAM]


def run(run):
    for server_threads, client_threads in ((4, 4), (1, 4), (4, 1)):
        name = f"{server_threads} threads for {client_threads}"
        port = harness.free_port()
        server = run.serve([PROGRAM, "server", port, server_threads], port)
        output = run.client([PROGRAM, "client", port, client_threads]).decode().splitlines()
        run.result(name, output[:-1])
        run.speed(f"{name}: round trips/s", output[-1])
        run.stop(server)
