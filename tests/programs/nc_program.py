"""nc and socat: pipes between a terminal's descriptors and a connection, half-closed; socat forks for each connection."""
import time

import harness

NEEDS = ["nc.openbsd", "socat"]


def run(run):
    up = run.file("up", harness.pattern(3_000_000, 1))
    down = run.file("down", harness.pattern(2_000_000, 2))

    port = harness.free_port()
    server = run.serve(["nc.openbsd", "-N", "-l", "127.0.0.1", port], port, stdin=down.open("rb"))
    run.result("nc down", harness.digest(run.client(["nc.openbsd", "-N", "127.0.0.1", port], stdin=up.open("rb"))))
    run.result("nc up", harness.digest(run.finish(server)))

    port = harness.free_port()
    run.serve(["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", "EXEC:cat"], port)
    for i in range(3):
        echoed = run.client(["socat", "-t", "20", "-", f"TCP:127.0.0.1:{port}"], stdin=up.open("rb"))
        run.result(f"socat echo {i}", harness.digest(echoed))

    port = harness.free_port()
    run.serve(["socat", "-u", f"OPEN:{up}", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr"], port)
    start = time.monotonic()
    run.result("socat to nc", harness.digest(run.client(["nc.openbsd", "-d", "127.0.0.1", port])))
    run.speed("socat MB/s", 3 / (time.monotonic() - start))

    refused = run.client(["nc.openbsd", "-z", "127.0.0.1", harness.free_port()], codes=(0, 1))
    run.result("refused", refused)
