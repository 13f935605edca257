"""PostgreSQL: accepts, then forks a process for each connection; psql and pgbench as clients."""
import os
import re
import time

import harness

BIN = "/usr/lib/postgresql/15/bin"
NEEDS = [f"{BIN}/postgres", f"{BIN}/initdb", f"{BIN}/pgbench", "setpriv"]

SCRIPT = """\
CREATE TABLE items (id int PRIMARY KEY, text text);
INSERT INTO items SELECT i, md5(i::text) FROM generate_series(1, 20000) i;
SELECT count(*), sum(id), md5(string_agg(text, '' ORDER BY id)) FROM items;
SELECT * FROM items ORDER BY id LIMIT 3;
BEGIN; DELETE FROM items WHERE id % 2 = 0; SELECT count(*) FROM items; ROLLBACK;
SELECT count(*) FROM items;
SELECT 1 / 0;
SELECT repeat('x', 3000000);
COPY items TO STDOUT;
DROP TABLE items;
"""


def run(run):
    # It refuses to be root.
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    data = run.folder / "data"
    if not data.exists():
        run.finish(run.start([f"{BIN}/initdb", "-D", data, "-U", "leat", "-A", "trust", "-N", "--locale=C"], [], before=user))
    port = harness.free_port()
    server = run.serve([f"{BIN}/postgres", "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1",
                        "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "full_page_writes=off"], port, before=user)

    def client(program, *words, **options):
        return run.client([f"{BIN}/{program}", "-h", "127.0.0.1", "-p", port, "-U", "leat", *words], before=user, **options)

    # It listens before it lets anybody in.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and b"1" not in run.client([f"{BIN}/psql", "-h", "127.0.0.1", "-p", port, "-U", "leat", "-Atc", "SELECT 1", "postgres"],
                                 before=user, codes=(0, 2)):
        time.sleep(0.05)
    script = run.file("script.sql", SCRIPT.encode())
    run.result("script", harness.digest(client("psql", "-X", "-q", "postgres", stdin=script.open("rb"))))
    run.result("rows", client("psql", "-X", "-Atc", "SELECT i, i * i FROM generate_series(1, 5) i", "postgres"))
    run.check_live(server, [f"{BIN}/psql", "-h", "127.0.0.1", "-p", port, "-U", "leat", "-X", "-At", "postgres"],
                   b"SELECT 6 * 7;\n", b"42", before=user)
    if run.both():
        measure(run, client)
    run.stop(server)


def measure(run, client):
    client("pgbench", "-i", "-q", "-s", "1", "postgres")
    for name, options in (("1 client", ["-c", "1"]), ("4 clients", ["-c", "4", "-j", "2"]),
                          ("4 clients, reconnecting", ["-c", "4", "-C"])):
        count = (2000 if harness.LONG else 200) // (10 if "-C" in options else 1)
        text = client("pgbench", "-n", "-S", "-t", str(count), *options, "postgres").decode()
        run.result(name, re.search(r"number of transactions actually processed: \S+", text).group(0), True)
        run.speed(f"{name} tps", re.search(r"tps = ([\d.]+)", text).group(1))
    text = client("pgbench", "-n", "-t", "50", "-c", "4", "-M", "prepared", "postgres").decode()
    run.result("writing", re.search(r"number of failed transactions: \S+", text).group(0), True)
    run.result("balance", client("psql", "-X", "-Atc", "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = "
                                 "(SELECT sum(delta) FROM pgbench_history), count(*) FROM pgbench_history", "postgres"), True)
