"""nginx: two workers that accept from one listener, edge-triggered epoll, sendfile, keep-alive; curl and wrk as clients."""
import re
import time

import harness

NEEDS = ["/usr/sbin/nginx", "curl", "wrk", "nc.openbsd"]

CONFIGURATION = """\
user root;
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  sendfile {sendfile};
  tcp_nopush on;
  keepalive_requests 100000;
  client_body_temp_path {folder}/nginx.body;
  proxy_temp_path {folder}/nginx.proxy;
  fastcgi_temp_path {folder}/nginx.fastcgi;
  uwsgi_temp_path {folder}/nginx.uwsgi;
  scgi_temp_path {folder}/nginx.scgi;
  server {{
    listen 127.0.0.1:{port} backlog=511 {options};
    root {folder}/www;
    location /answer {{ return 200 "an answer\\n"; }}
    location /through/ {{ proxy_pass http://127.0.0.1:{port}/; proxy_http_version 1.1; }}
  }}
}}
"""


def serve(run, sendfile, options):
    port = harness.free_port()
    (run.folder / "www").mkdir(exist_ok=True)
    run.file("www/big", harness.pattern(10_000_000))
    run.file("www/small", harness.pattern(1000))
    text = CONFIGURATION.format(folder=run.folder, port=port, sendfile=sendfile, options=options)
    configuration = run.file(f"nginx.{port}.conf", text.encode())
    server = run.serve(["/usr/sbin/nginx", "-c", configuration, "-e", run.folder / "nginx.log"], port)
    return server, f"http://127.0.0.1:{port}"


def load(run, words):
    """What wrk says of 64 clients. A machine that is busy with else may not have sent one whole file to any of them in that time."""
    deadline = time.monotonic() + harness.PATIENCE
    while True:
        text = run.client(["wrk", "-t", "2", "-c", "64", "-d", "5s" if harness.LONG else "1s", *words]).decode()
        if " 0 requests in" not in text or time.monotonic() > deadline:
            return text


def run(run):
    def curl(*words):
        return run.client(["curl", "-sS", "--max-time", "20", *words])

    for sendfile, options in (("on", ""), ("off", "reuseport")):
        parts = range(4)
        server, address = serve(run, sendfile, options)
        name = f"sendfile {sendfile}"
        run.result(f"{name} big", harness.digest(curl(f"{address}/big")))
        run.result(f"{name} kept alive", harness.digest(curl(*[f"{address}/{file}" for file in ("small", "big", "answer", "small")])))
        run.result(f"{name} connections", curl("-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", f"{address}/small",
                                              "-o", "/dev/null", f"{address}/missing"))
        run.result(f"{name} range", harness.digest(curl("-r", "5000-700000", f"{address}/big")))
        run.result(f"{name} proxied", harness.digest(curl(f"{address}/through/big")))
        run.result(f"{name} in parallel", harness.digest(
            curl("-Z", "--no-progress-meter", *[word for i in parts for word in ("-o", f"part.{i}", f"{address}/big")])))
        run.result(f"{name} parts", [harness.digest(run.folder / f"part.{i}") for i in parts])
        if sendfile == "on" and run.both():
            for what, *words in (("requests/s", f"{address}/answer"), ("10 MB files/s", f"{address}/big"),
                                 ("connections/s", "-H", "Connection: close", f"{address}/answer")):
                text = load(run, words)
                # Not how many took longer than 2 s.
                run.result(f"wrk {what}", re.findall(r"connect [1-9]\d*|read [1-9]\d*|write [1-9]\d*|Non-2xx.*", text), True)
                run.result(f"wrk {what} served", int(re.search(r"(\d+) requests in", text).group(1)) > 0, True)
                run.speed(f"64 clients {what}", re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
        run.check_live(server, ["nc.openbsd", "127.0.0.1", address.rpartition(":")[2]],
                       b"GET /answer HTTP/1.1\r\nHost: here\r\n\r\n", b"an answer\n")
        run.stop(server)
