"""sockperf: ping-pong with checked content through every way to wait that it has."""
import re

import harness

NEEDS = ["sockperf"]
CARRIERS = ["both"]  # each of its runs takes seconds

# Waits of the server: recvfrom alone, then of a file of two sockets select, poll and epoll.
MODES = {"recvfrom": None, "select": "s", "poll": "p", "epoll": "e"}


def serve(run, mode):
    port = harness.free_port()
    if MODES[mode] is None:
        return run.serve(["sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", port], port), port
    other = harness.free_port()
    feed = run.file(f"feed.{mode}", f"T:127.0.0.1:{port}\nT:127.0.0.1:{other}\n".encode())
    return run.serve(["sockperf", "sr", "-f", feed, "-F", MODES[mode]], port), port


def ping_pong(run, port, name, *options):
    text = run.client(["sockperf", "pp", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", "1", "--dontwarmup", *options]).decode()
    lost = re.search(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
    run.result(name, lost.groups() if lost else text[-300:])
    return float(re.search(r"Summary: Latency is ([\d.]+)", text).group(1))


def run(run):
    for mode in MODES:
        server, port = serve(run, mode)
        ping_pong(run, port, f"{mode} checked", "--data-integrity", "-m", "1400", "--mps", "2000")
        if mode in ("recvfrom", "epoll"):
            run.speed(f"{mode} 1/us at 64 B", 1 / ping_pong(run, port, mode, "-m", "64"))
        run.stop(server)
    server, port = serve(run, "epoll")
    ping_pong(run, port, "not blocking", "--nonblocked", "--data-integrity", "-m", "300", "--mps", "2000")
    text = run.client(["sockperf", "tp", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", "1", "--dontwarmup", "-m", "1400"]).decode()
    run.speed("throughput messages/s", re.search(r"Message Rate is (\d+)", text).group(1))
