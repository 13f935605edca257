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


def start_ping_pong(run, port, *words, before=()):
    seconds = "5" if harness.LONG else "1"
    def start():
        return run.start_client(["sockperf", "pp", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", seconds, "--dontwarmup", *words],
                                before=before)
    return start, start()


def end_ping_pong(run, ping_pong, name):
    start, client = ping_pong
    text = run.finish(client).decode()
    if "Summary: Latency is" not in text:
        # On a busy machine its second may pass without an answer that it counts.
        print(f"sockperf: {name}: once more, as it measured nothing: {text[-500:]}")
        text = run.finish(start()).decode()
    lost = re.search(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
    run.result(name, lost.groups() if lost else text[-300:])
    return float(re.search(r"Summary: Latency is ([\d.]+)", text).group(1))


def run(run):
    servers = {mode: serve(run, mode) for mode in MODES}
    # All at once, because each takes seconds, in which it hardly does anything.
    checked = ("--data-integrity", "-m", "1400", "--mps", "500")
    clients = {f"{mode} checked": start_ping_pong(run, port, *checked) for mode, (_, port) in servers.items()}
    for name, client in clients.items():
        end_ping_pong(run, client, name)
    client = start_ping_pong(run, servers["epoll"][1], "--nonblocked", "--data-integrity", "-m", "300", "--mps", "500")
    end_ping_pong(run, client, "not blocking")
    for mode in ("recvfrom", "epoll"):
        latency = end_ping_pong(run, start_ping_pong(run, servers[mode][1], "-m", "64"), mode)
        run.speed(f"{mode} 1/us at 64 B", 1 / latency)
    # Both ends never sleep, if they are carried.
    port = harness.free_port()
    spin = ["env", "LEAT_SPIN_US=inf"]
    server = run.serve(["sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", port], port, before=spin)
    latency = end_ping_pong(run, start_ping_pong(run, port, "-m", "64", before=spin), "spinning")
    run.speed("spinning 1/us at 64 B", 1 / latency)
    run.stop(server)
    port = servers["epoll"][1]
    text = run.client(["sockperf", "tp", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", "1", "--dontwarmup", "-m", "1400"]).decode()
    run.speed("throughput messages/s", re.search(r"Message Rate is (\d+)", text).group(1))
