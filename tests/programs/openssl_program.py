"""openssl s_server and s_client: TLS over a connection that is carried, by read and write."""
import subprocess
import time

import harness

NEEDS = ["openssl", "curl"]


def run(run):
    key, certificate = run.folder / "key.pem", run.folder / "certificate.pem"
    if not key.exists():
        run.finish(run.start(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                              "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-days", "2"], []))
    identity = ["-key", key, "-cert", certificate]
    content = harness.pattern(8_000_000)
    (run.folder / "tls").mkdir(exist_ok=True)
    source = run.file("tls/source", content)

    port = harness.free_port()
    server = run.serve(["openssl", "s_server", *identity, "-accept", f"127.0.0.1:{port}", "-WWW", "-quiet"], port,
                       stdin=None)
    start = time.monotonic()
    output = run.client(["curl", "-sS", "-k", "--http0.9", "--max-time", "20", f"https://127.0.0.1:{port}/tls/source"])
    run.speed("https MB/s", 8 / (time.monotonic() - start))
    run.result("https", harness.digest(output))
    run.stop(server)

    for version in ("-tls1_2", "-tls1_3"):
        port = harness.free_port()
        server = run.serve(["openssl", "s_server", *identity, "-accept", f"127.0.0.1:{port}", "-rev", "-quiet"], port)
        lines = run.file("lines", b"".join(b"line number %d\n" % i for i in range(200)))
        client = run.start_client(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", version, "-quiet", "-verify_quiet"],
                                  stdin=lines.open("rb"))
        deadline = time.monotonic() + 20
        while client.out.read_bytes().count(b"\n") < 200 and time.monotonic() < deadline:
            time.sleep(0.02)
        run.check_statistics(server, live=1)
        run.stop(client)
        run.result(f"reversed {version}", harness.digest(client.out))
        run.stop(server)

    # In hexadecimal, because s_client takes some capital letters for commands.
    text = run.file("hexadecimal", content[:2_000_000].hex().encode())
    port = harness.free_port()
    server = run.serve(["openssl", "s_server", *identity, "-accept", f"127.0.0.1:{port}", "-quiet", "-naccept", "1"], port,
                       stdin=subprocess.PIPE)
    run.client(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-quiet", "-verify_quiet", "-no_ign_eof"],
               stdin=text.open("rb"))
    run.result("from s_client", harness.digest(run.finish(server)))
