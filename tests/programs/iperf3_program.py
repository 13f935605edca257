"""iperf3: select and poll, control and data connections, both directions, several streams."""
import json

import harness

NEEDS = ["iperf3"]
BYTES = 200 * 1024 * 1024


def measure(run, name, *options):
    port = harness.free_port()
    server = run.serve(["iperf3", "-s", "-1", "-p", port], port)
    output = json.loads(run.client(["iperf3", "-c", "127.0.0.1", "-p", port, "--json", *options]))
    run.finish(server)
    end = output["end"]
    run.result(name, {
        "error": output.get("error"),
        "streams": len(end["streams"]),
        # What is still under way when it stops is not counted.
        "arrived": end["sum_received"]["bytes"] >= 0.5 * end["sum_sent"]["bytes"] > 0,
    })
    run.speed(f"{name} Gb/s", end["sum_received"]["bits_per_second"] / 1e9)


def run(run):
    measure(run, "forward", "-n", str(BYTES))
    measure(run, "reverse", "-n", str(BYTES), "-R")
    measure(run, "4 streams", "-n", str(BYTES), "-P", "4")
    measure(run, "both directions", "-t", "1", "--bidir")
    measure(run, "small writes", "-n", "50M", "-l", "1000")
