"""sockperf: ping-pong with checked content through every way to wait that it has."""
import re

import harness

NEEDS = ["sockperf"]
CARRIERS = ["both"]  # each of its runs takes seconds

# As fast as it gets answers, but no faster: without a limit it makes room for 600,000 a second and one second more, and ends with
# "_seqN > m_maxSequenceNo" when an answer takes less than 0.83 us, as under leat-run on a quiet machine.
SMALL = ("-m", "64", "--mps", "500000")

# Waits of the server: recvfrom alone, then of a file of two sockets select, poll and epoll.
MODES = {"recvfrom": None, "select": "s", "poll": "p", "epoll": "e"}
LOST = re.compile(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)")


def serve(run, mode):
    port = harness.free_port()
    if MODES[mode] is None:
        return run.serve(["sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", port], port), port
    other = harness.free_port()
    feed = run.file(f"feed.{mode}", f"T:127.0.0.1:{port}\nT:127.0.0.1:{other}\n".encode())
    return run.serve(["sockperf", "sr", "-f", feed, "-F", MODES[mode]], port), port


# sockperf counts what it sends from 0.4 s after its first message until 0.05 s before its last, so of a run of one second nothing
# where an answer takes half of it. That is so over TCP too, if more programs are ready than there are cores and one end waits without
# sleeping (the client that does not block; under leat-run also who spins without end): it holds its core until the kernel takes that
# from it, and then the answer waits until all the others had theirs. With 50 busy loops on two cores nothing was measured in 20 of 29
# runs of the client that does not block over TCP and in 12 of 17 under leat-run, in 2 of 22 and 1 of 22 of those that block with the
# same 500 messages a second. Such a client was ready all the time and ran for 15 ms; in none of 1,082 runs were both ends asleep.
def start_client(run, *words, before=()):
    def start(seconds="5" if harness.LONG else "1"):
        return run.start_client(["sockperf", "pp", "-t", seconds, "--dontwarmup", *words], before=before)
    return start, start()


def start_ping_pong(run, port, *words, before=()):
    return start_client(run, "--tcp", "-i", "127.0.0.1", "-p", port, *words, before=before)


def start_feeding(run, feed, *words):
    return start_client(run, "-f", feed, "--data-integrity", "-m", "1400", "-r", "1000", "--mps", "500", *words)


def end_ping_pong(run, ping_pong, name):
    start, client = ping_pong
    text = run.finish(client).decode()
    if "Summary: Latency is" not in text:
        print(f"sockperf: {name}: for longer, as it measured nothing: {text[-500:]}")
        text = run.finish(start("5")).decode()
    sent = re.search(r"SentMessages=(\d+); ReceivedMessages=(\d+)", text)
    lost = LOST.search(text)
    latency = re.search(r"Summary: Latency is ([\d.]+)", text)
    if not sent or not lost or not latency:
        raise harness.Failure(f"{name}: nothing measured: {text[-500:]}")
    # But for the one that its time ends at, all are answered.
    run.result(name, (int(sent[1]) - int(sent[2]) <= 1, *lost.groups()))
    return float(latency[1])


def run(run):
    servers = {mode: serve(run, mode) for mode in MODES}
    # All at once, because each takes seconds, in which it hardly does anything.
    checked = ("--data-integrity", "-m", "1400", "--mps", "500")
    clients = {f"{mode} checked": start_ping_pong(run, port, *checked) for mode, (_, port) in servers.items()}
    for name, client in clients.items():
        end_ping_pong(run, client, name)
    # The client, too, waits in each way, with messages of all lengths; recvfrom for several would block at one.
    clients = {}
    for mode in MODES.values():
        if mode is not None:
            clients[f"client {mode}"] = start_feeding(run, run.folder / "feed.epoll", "-F", mode)
    clients["client r"] = start_feeding(run, run.folder / "feed.poll", "-F", "r", "--nonblocked")
    clients["not blocking"] = start_ping_pong(run, servers["select"][1], "--nonblocked", *checked)
    for name, client in clients.items():
        end_ping_pong(run, client, name)
    # Answers are not waited for here.
    text = run.client(["sockperf", "ul", "--tcp", "-i", "127.0.0.1", "-p", servers["select"][1], "-t", "1", "--dontwarmup", "-m", "1400",
                       "--mps", "500", "--reply-every", "1"]).decode()
    run.result("under load", LOST.search(text).groups())
    for mode in ("recvfrom", "epoll"):
        latency = end_ping_pong(run, start_ping_pong(run, servers[mode][1], *SMALL), mode)
        run.speed(f"{mode} 1/us at 64 B", 1 / latency)
    # Both ends never sleep, if they are carried.
    port = harness.free_port()
    spin = ["env", "LEAT_SPIN_US=inf"]
    server = run.serve(["sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", port], port, before=spin)
    latency = end_ping_pong(run, start_ping_pong(run, port, *SMALL, before=spin), "spinning")
    run.speed("spinning 1/us at 64 B", 1 / latency)
    run.stop(server)
    port = servers["epoll"][1]
    text = run.client(["sockperf", "tp", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", "1", "--dontwarmup", "-m", "1400"]).decode()
    run.speed("throughput messages/s", re.search(r"Message Rate is (\d+)", text).group(1))
