"""uvloop: asyncio on libuv, which closes past the C library; clients that come and go, and files and pipes of both ends between them."""
import harness

PYTHON = "/usr/bin/python3"
NEEDS = [PYTHON, "/usr/lib/python3/dist-packages/uvloop"]


def run(run):
    own = {role: run.folder / f"uvloop.{role}" for role in ("server", "client")}
    for folder in own.values():
        folder.mkdir(exist_ok=True)
    port = harness.free_port()
    script = harness.ROLES / "uvloop_files.py"
    run.serve([PYTHON, script, "server", port, own["server"]], port)
    output = run.client([PYTHON, script, "client", port, own["client"]]).decode().splitlines()
    run.result("client", output[:-1])
    run.speed("round trips/s", output[-1])
