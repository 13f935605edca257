"""CPython: http.server with threads, and an asyncio echo of many connections; makefile() and sendfile underneath."""
import time

import harness

PYTHON = "/usr/bin/python3"
NEEDS = [PYTHON, "curl"]


def run(run):
    port = harness.free_port()
    www = run.folder / "python"
    www.mkdir(exist_ok=True)
    run.file("python/big", harness.pattern(10_000_000))
    run.file("python/small", harness.pattern(321))
    run.serve([PYTHON, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", www], port)
    start = time.monotonic()
    for name in ("small", "big", "missing"):
        run.result(f"curl {name}", harness.digest(run.client(
            ["curl", "-sS", "--max-time", "20", f"http://127.0.0.1:{port}/{name}"])))
    run.speed("http.server and curl 1/s", 1 / (time.monotonic() - start))
    fetch = ("import sys, urllib.request as r, hashlib\n"
             "for _ in range(20): print(hashlib.sha256(r.urlopen(sys.argv[1]).read()).hexdigest())")
    run.result("urllib", run.client([PYTHON, "-c", fetch, f"http://127.0.0.1:{port}/small"]))

    port = harness.free_port()
    run.serve([PYTHON, harness.ROLES / "asyncio_echo.py", "server", port], port)
    output = run.client([PYTHON, harness.ROLES / "asyncio_echo.py", "client", port]).decode().splitlines()
    run.result("asyncio", output[:-1])
    run.speed("asyncio round trips/s", output[-1])
