"""gRPC for Python: channels that connect again each time the server has ended, asked or killed; threads that share one epoll set."""
import signal
import subprocess
import time

import harness

PYTHON = "/usr/bin/python3"
NEEDS = [PYTHON, "/usr/lib/python3/dist-packages/grpc"]
SCRIPT = harness.ROLES / "grpc_restarts.py"
GENERATIONS = 6


def wait_for(client, line):
    deadline = time.monotonic() + harness.PATIENCE
    while line not in client.out.read_bytes().splitlines():
        if client.poll() is not None or time.monotonic() > deadline:
            raise harness.Failure(f"{client.name}: no {line!r}: ended with {client.returncode}, {harness.Run.errors_of(client)}")
        time.sleep(0.02)


def run(run):
    port = harness.free_port()
    client = run.start_client([PYTHON, SCRIPT, "client", port, GENERATIONS], stdin=subprocess.PIPE)
    for generation in range(GENERATIONS):
        # The calls wait for the server: sometimes they are there before it.
        wait_for(client, b"calls %d" % generation)
        server = run.serve([PYTHON, SCRIPT, "server", port], port)
        wait_for(client, b"generation %d" % generation)
        run.stop(server, signal.SIGKILL if generation % 2 else signal.SIGTERM)
        client.stdin.write(b"\n")
        client.stdin.flush()
    run.serve([PYTHON, SCRIPT, "server", port], port)
    output = run.finish(client).decode().splitlines()
    run.result("client", output[:-1])
    run.speed("calls/s", output[-1])
