"""iperf3: select and poll, control and data connections, both directions, several streams."""
import json

import harness

NEEDS = ["iperf3"]
MEGABYTES = 1000 if harness.LONG else 100


def measure(run, name, *options):
    port = harness.free_port()
    server = run.serve(["iperf3", "-s", "-1", "-p", port], port)
    output = json.loads(run.client(["iperf3", "-c", "127.0.0.1", "-p", port, "--json", *options]))
    run.finish(server)
    end = output["end"]
    run.result(name, measured=name not in ("forward", "reverse"), value={
        "error": output.get("error"),
        "streams": len(end["streams"]),
        # What is still under way when it stops is not counted.
        "arrived": end["sum_received"]["bytes"] >= 0.5 * end["sum_sent"]["bytes"] > 0,
    })
    run.speed(f"{name} Gb/s", end["sum_received"]["bits_per_second"] / 1e9)


def run(run):
    measure(run, "forward", "-n", f"{MEGABYTES}M")
    measure(run, "reverse", "-n", f"{MEGABYTES}M", "-R")
    if run.both():
        measure(run, "4 streams", "-n", f"{MEGABYTES}M", "-P", "4")
        measure(run, "both directions", "-n", f"{MEGABYTES}M", "--bidir")
        measure(run, "small writes", "-n", f"{MEGABYTES // 5}M", "-l", "1000")
