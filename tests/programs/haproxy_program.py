"""HAProxy: several threads that accept and connect, keep-alive and a connection for each request, splice; health checks that see a
server die and come back, and a reload, in which a new process gets the listeners and the old one keeps its connections."""
import re
import signal
import socket
import subprocess
import time

import harness

HAPROXY = "/usr/sbin/haproxy"
PYTHON = "/usr/bin/python3"
NEEDS = [HAPROXY, PYTHON, "curl", "wrk", "nc.openbsd"]

CONFIGURATION = """\
global
  nbthread 2
  stats socket {folder}/haproxy.sock level admin
defaults
  mode http
  timeout connect 20s
  timeout client 60s
  timeout server 60s
  timeout check 20s
frontend kept
  bind 127.0.0.1:{kept}
  default_backend servers
frontend closing
  bind 127.0.0.1:{closing}
  option httpclose
  default_backend servers
backend servers
  balance roundrobin
  option httpchk GET /health
  server a 127.0.0.1:{a} check inter 1s fastinter 50ms downinter 50ms fall 3 rise 1
  server b 127.0.0.1:{b} check inter 1s fastinter 50ms downinter 50ms fall 3 rise 1
frontend answers
  bind 127.0.0.1:{answers}
  http-request return status 200 content-type text/plain string "generation {generation}\\n"
frontend kept_to_itself
  bind 127.0.0.1:{kept_to_itself}
  default_backend itself
frontend closing_to_itself
  bind 127.0.0.1:{closing_to_itself}
  option httpclose
  default_backend itself
backend itself
  server itself 127.0.0.1:{answers}
listen raw
  mode tcp
  option splice-auto
  bind 127.0.0.1:{raw}
  server echo 127.0.0.1:{echo}
"""
PORTS = ("kept", "closing", "answers", "kept_to_itself", "closing_to_itself", "raw", "a", "b", "echo")


def wait_until(what, condition):
    deadline = time.monotonic() + harness.PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise harness.Failure(f"not in {harness.PATIENCE} s: {what}")
        time.sleep(0.02)


def command(folder, line):
    """What HAProxy's own socket answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "haproxy.sock"))
        connection.sendall(line.encode() + b"\n")
        return connection.makefile().read()


def status(folder, server):
    """UP or DOWN, as the health checks found it."""
    row = next(row for row in command(folder, "show stat").splitlines() if row.startswith(f"servers,{server},"))
    return row.split(",")[17].split()[0]


def carried_to(run, port):
    """How many connections were carried to the listeners of the proxy itself, as their connecting sides say."""
    lines = run.log.read_text(errors="replace").splitlines()
    return sum(line.endswith(f":{port[name]}: carried through shared memory") for line in lines for name in ("kept", "closing"))


def run(run):
    port = {name: harness.free_port() for name in PORTS}

    def url(name, path=""):
        return f"http://127.0.0.1:{port[name]}{path}"

    def curl(*words):
        return run.client(["curl", "-sS", "--max-time", "20", *words])

    def configure(generation):
        return run.file("haproxy.conf", CONFIGURATION.format(folder=run.folder, generation=generation, **port).encode())

    def twenty(name):
        """The different answers to twenty requests, after how many were answered. That each server gets half of them is not told,
        because a health check may be late."""
        answers = curl(*[url(name, "/small")] * 20).splitlines()
        return [len(answers), *sorted(set(answers))]

    def tiny(name):
        return run.serve([PYTHON, harness.ROLES / "tiny_http.py", port[name], name, 3_000_000], port[name])

    servers = {name: tiny(name) for name in "ab"}
    run.serve([PYTHON, harness.ROLES / "asyncio_echo.py", "server", port["echo"]], port["echo"])
    proxy = run.serve([HAPROXY, "-W", "-f", configure(1)], port["raw"])

    body = run.file("body", harness.pattern(700_000))
    for name in ("kept", "closing"):
        run.result(f"{name} balanced", twenty(name))
        run.result(f"{name} connections", curl("-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", url(name, "/small"),
                                              "-o", "/dev/null", url(name, "/small")))
        run.result(f"{name} big", harness.digest(curl(url(name, "/big"))))
        run.result(f"{name} posted", harness.digest(curl("--data-binary", f"@{body}", "-H", "Expect:", url(name))))
        parts = range(10)
        curl("-Z", "--no-progress-meter", *[word for i in parts for word in ("-o", f"part.{i}", url(name, "/big"))])
        run.result(f"{name} parts", [harness.digest(run.folder / f"part.{i}") for i in parts])
    output = run.client([PYTHON, harness.ROLES / "asyncio_echo.py", "client", port["raw"]]).decode().splitlines()
    run.result("raw", output[:-1])
    run.speed("raw round trips/s", output[-1])

    # One that dies gets no requests, and gets them again when it is back.
    run.stop(servers["b"], signal.SIGKILL)
    wait_until("b is down", lambda: status(run.folder, "b") == "DOWN")
    run.result("without b", [twenty(name) for name in ("kept", "closing")])
    tiny("b")
    wait_until("b is up", lambda: status(run.folder, "b") == "UP")
    run.result("with b", [twenty(name) for name in ("kept", "closing")])

    # The new process serves what comes, the old one what is there.
    staying = run.start_client(["nc.openbsd", "127.0.0.1", port["raw"]], stdin=subprocess.PIPE)

    def through_staying(line):
        staying.stdin.write(line)
        staying.stdin.flush()
        wait_until(f"{line!r} comes back", lambda: staying.out.read_bytes().endswith(line))

    through_staying(b"before\n")
    configure(2)
    proxy.send_signal(signal.SIGUSR2)
    wait_until("the new process serves", lambda: curl(url("answers")) == b"generation 2\n")
    through_staying(b"after\n")
    run.result("staying", staying.out.read_bytes())
    run.stop(staying)
    # HAProxy takes care that the listeners that it was given are as it would have made them.
    before = carried_to(run, port)
    for name in ("kept", "closing"):
        run.result(f"{name} after the reload", twenty(name))
    if before > 0 and carried_to(run, port) == before:
        raise harness.Failure("nothing is carried to listeners that a reload has handed on")
    if run.both():
        measure(run, url)


def measure(run, url):
    for name in ("kept_to_itself", "closing_to_itself"):
        text = run.client(["wrk", "-t", "1", "-c", "32", "-d", "5s" if harness.LONG else "1s", url(name)]).decode()
        run.result(f"wrk {name}", re.findall(r"connect [1-9]\d*|read [1-9]\d*|write [1-9]\d*|Non-2xx.*", text), True)
        run.speed(f"{name} requests/s", re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
