"""ZeroMQ: its own I/O threads on epoll, request and reply, publish and subscribe, many connections and reconnecting."""
import harness

PYTHON = "/usr/bin/python3"
NEEDS = [PYTHON, "/usr/lib/python3/dist-packages/zmq"]


def run(run):
    port = harness.free_port()
    run.serve([PYTHON, harness.ROLES / "zeromq_hello.py", "server", port], port)
    output = run.client([PYTHON, harness.ROLES / "zeromq_hello.py", "client", port]).decode().splitlines()
    run.result("hello", output[:-1])
    run.speed("requests/s", output[-1])
