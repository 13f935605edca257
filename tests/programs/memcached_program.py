"""memcached: libevent with several threads, sendmsg, __poll_chk; a client that pipelines and one of libmemcached."""
import harness

NEEDS = ["memcached", "memccp", "memccat", "nc.openbsd", "/usr/bin/python3"]


def run(run):
    port = harness.free_port()
    server = run.serve(["memcached", "-p", port, "-l", "127.0.0.1", "-U", "0", "-u", "root", "-t", "2", "-I", "8m", "-m", "256"], port)
    output = run.client(["/usr/bin/python3", harness.ROLES / "memcached_client.py", port]).decode().splitlines()
    run.result("text protocol", output[:-1])
    run.speed("sets and gets/s", output[-1])

    source = run.file("object", harness.pattern(900_000))
    servers = f"--servers=127.0.0.1:{port}"
    run.client(["memccp", servers, source])
    # It ends what it prints with a newline.
    run.result("copied", harness.digest(run.client(["memccat", servers, source.name])))
    run.check_live(server, ["nc.openbsd", "127.0.0.1", port], b"version\r\n", b"VERSION")
