"""Node.js: libuv closes past the C library, so files and pipes of the server and the client get numbers that connections had before.

LEAT_PROGRAMS_NODE names another Node.js than Debian's.
"""
import os
import re

import harness

NODE = os.environ.get("LEAT_PROGRAMS_NODE", "/usr/bin/node")
NEEDS = [NODE, "curl", "wrk"]
SCRIPT = harness.ROLES / "node_http.js"


def run(run):
    www = run.folder / "node"
    www.mkdir(exist_ok=True)
    run.file("node/small", harness.pattern(321))
    run.file("node/big", harness.pattern(10_000_000))
    for i in range(300):
        run.file(f"node/number.{i}", harness.pattern(30_000, i))
    port = harness.free_port()
    run.serve([NODE, SCRIPT, "server", port, www], port)
    output = run.client([NODE, SCRIPT, "client", port, www]).decode().splitlines()
    run.result("client", output[:-1])
    run.speed("16 clients requests/s", output[-1])

    address = f"http://127.0.0.1:{port}"
    run.result("curl", harness.digest(run.client(["curl", "-sS", "--max-time", "20", *[f"{address}/file/{i}" for i in ("small", "big")]])))
    if run.both():
        text = run.client(["wrk", "-t", "1", "-c", "16", "-d", "5s" if harness.LONG else "1s", f"{address}/answer"]).decode()
        run.result("wrk", re.findall(r"connect [1-9]\d*|read [1-9]\d*|write [1-9]\d*|Non-2xx.*", text), True)
        run.speed("wrk requests/s", re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
