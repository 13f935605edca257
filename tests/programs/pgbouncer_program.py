"""pgbouncer before PostgreSQL: many clients share few connections, each for a transaction; psql and pgbench as clients. It is
restarted while clients stay: the new process gets all sockets from the old one."""
import os
import re
import subprocess
import time

import harness

BIN = "/usr/lib/postgresql/15/bin"
PGBOUNCER = "/usr/sbin/pgbouncer"
NEEDS = [PGBOUNCER, f"{BIN}/postgres", f"{BIN}/initdb", f"{BIN}/pgbench", "setpriv"]

CONFIGURATION = """\
[databases]
postgres = host=127.0.0.1 port={server} user=leat
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
admin_users = leat
pool_mode = transaction
max_client_conn = 200
default_pool_size = 5
server_idle_timeout = 600
ignore_startup_parameters = extra_float_digits
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
"""

SCRIPT = """\
CREATE TABLE items (id int PRIMARY KEY, text text);
INSERT INTO items SELECT i, md5(i::text) FROM generate_series(1, 20000) i;
SELECT count(*), sum(id), md5(string_agg(text, '' ORDER BY id)) FROM items;
BEGIN; DELETE FROM items WHERE id % 2 = 0; SELECT count(*) FROM items; ROLLBACK;
SELECT 1 / 0;
SELECT repeat('x', 3000000);
COPY items TO STDOUT;
DROP TABLE items;
"""


def run(run):
    # Both refuse to be root.
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    data = run.folder / "data"
    if not data.exists():
        run.finish(run.start([f"{BIN}/initdb", "-D", data, "-U", "leat", "-A", "trust", "-N", "--locale=C"], [], before=user))
    server_port, port = harness.free_port(), harness.free_port()
    run.serve([f"{BIN}/postgres", "-D", data, "-p", server_port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
               "-c", "fsync=off", "-c", "full_page_writes=off"], server_port, before=user)
    # It listens before it lets anybody in, and pgbouncer would not come back to it for a while.
    direct = [f"{BIN}/psql", "-h", "127.0.0.1", "-p", server_port, "-U", "leat", "-X", "-Atc", "SELECT 1", "postgres"]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and run.client(direct, before=user, codes=(0, 2)) != b"1\n":
        time.sleep(0.05)
    configuration = run.file("pgbouncer.ini", CONFIGURATION.format(folder=run.folder, server=server_port, port=port).encode())
    pgbouncer = run.serve([PGBOUNCER, configuration], port, before=user)
    options = ["-h", "127.0.0.1", "-p", port, "-U", "leat"]

    def client(program, *words, **more):
        return run.client([f"{BIN}/{program}", *options, *words], before=user, **more)

    def ask(question, database="postgres", **more):
        return client("psql", "-X", "-Atc", question, database, **more)

    script = run.file("pgbouncer.sql", SCRIPT.encode())
    run.result("script", harness.digest(client("psql", "-X", "-q", "postgres", stdin=script.open("rb"))))

    client("pgbench", "-i", "-q", "-s", "1", "postgres")
    count = 50
    for name, words in (("50 clients", ["-c", "50", "-j", "2"]), ("50 clients, reconnecting", ["-c", "50", "-j", "2", "-C"])):
        text = client("pgbench", "-n", "-S", "-t", str(count // (10 if "-C" in words else 1)), *words, "postgres").decode()
        run.result(name, re.findall(r"number of (?:transactions actually processed|failed transactions): \S+", text))
    text = client("pgbench", "-n", "-t", "20", "-c", "20", "postgres").decode()
    run.result("writing", re.findall(r"number of (?:transactions actually processed|failed transactions): \S+", text))
    run.result("balance", ask("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = "
                              "(SELECT sum(delta) FROM pgbench_history), count(*) FROM pgbench_history"))
    run.result("connections shared", int(ask("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")) <= 5)
    restart(run, pgbouncer, port, [PGBOUNCER, "-R", configuration], user, [f"{BIN}/psql", *options, "-X", "-At", "postgres"])
    run.result("after the restart", ask("SELECT 1 + 1"))
    ask("PAUSE", "pgbouncer")
    ask("RESUME", "pgbouncer")
    run.result("after a pause", ask("SELECT 2 + 2"))
    if run.both():
        measure(run, client)


def restart(run, pgbouncer, port, command, user, psql):
    """A second process takes over from the first, which ends, while a client stays."""
    staying = run.start_client(psql, stdin=subprocess.PIPE, before=user)

    def through_staying(question, answer):
        staying.stdin.write(question)
        staying.stdin.flush()
        deadline = time.monotonic() + harness.PATIENCE
        while not staying.out.read_bytes().endswith(answer):
            if staying.poll() is not None or time.monotonic() > deadline:
                raise harness.Failure(f"psql: no {answer!r}: {run.errors_of(staying)}")
            time.sleep(0.02)

    through_staying(b"SELECT 6 * 7;\n", b"42\n")
    run.serve(command, port, before=user)
    run.finish(pgbouncer)
    through_staying(b"SELECT 6 * 8;\n", b"48\n")
    run.result("staying", staying.out.read_bytes())
    run.stop(staying)


def measure(run, client):
    factor = 10 if harness.LONG else 1
    for name, words in (("1 client", ["-c", "1"]), ("20 clients", ["-c", "20", "-j", "2"])):
        text = client("pgbench", "-n", "-S", "-t", str(factor * 4000 // int(words[1])), *words, "postgres").decode()
        run.speed(f"{name} tps", re.search(r"tps = ([\d.]+)", text).group(1))
