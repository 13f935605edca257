"""redis-server with redis-cli and redis-benchmark: an event loop on epoll, pipelines, pub/sub, MULTI, a fork while connected."""
import csv
import io
import time

import harness

NEEDS = ["redis-server", "redis-cli", "redis-benchmark"]

SCRIPT = """\
SET counter 10
INCRBY counter 32
LPUSH list a b c d
LRANGE list 0 -1
HSET hash one 1 two 2
HGETALL hash
MULTI
INCR counter
SET inside yes
EXEC
GET inside
GET counter
MULTI
SET inside no
DISCARD
GET inside
EVAL "return {1, 2, redis.call('GET', 'counter')}" 0
ZADD ranks 3 c 1 a 2 b
ZRANGE ranks 0 -1 WITHSCORES
NOSUCHCOMMAND
LPUSH counter wrong
DBSIZE
"""


def benchmark(run, port, name, *options):
    text = run.client(["redis-benchmark", "-h", "127.0.0.1", "-p", port, "--csv", *options]).decode()
    tests = list(csv.DictReader(io.StringIO(text[text.index('"test"'):])))
    run.result(f"benchmark {name}", [row["test"] for row in tests])
    for row in tests:
        run.speed(f"{name} {row['test']}/s", row["rps"])


def run(run):
    port = harness.free_port()
    data = run.folder / f"redis.{port}"  # of each run its own, because it loads what another one saved
    data.mkdir()
    server = run.serve(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", data,
               "--enable-debug-command", "yes"], port)

    def cli(*words, **options):
        return run.client(["redis-cli", "-h", "127.0.0.1", "-p", port, *words], **options)

    script = run.file("script", SCRIPT.encode())
    run.result("script", cli(stdin=script.open("rb")))

    value = harness.pattern(5_000_000)
    cli("-x", "SET", "big", stdin=run.file("big", value).open("rb"))
    run.result("big", harness.digest(cli("--raw", "GET", "big")))

    commands = b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\nkey:%d\r\n$%d\r\nvalue-%d\r\n"
                        % (len(b"key:%d" % i), i, len(b"value-%d" % i), i) for i in range(20000))
    run.result("pipe", cli("--pipe", stdin=run.file("pipe", commands).open("rb")).splitlines()[-1])
    run.result("digest", cli("DEBUG", "DIGEST"))

    subscriber = run.start_client(["redis-cli", "-h", "127.0.0.1", "-p", port, "SUBSCRIBE", "news"])
    while cli("PUBSUB", "NUMSUB", "news").split()[-1] != b"1":
        time.sleep(0.02)
    for i in range(20):
        cli("PUBLISH", "news", f"message {i}")
    deadline = time.monotonic() + 5
    while b"message 19" not in subscriber.out.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.check_statistics(server, live=1)
    run.stop(subscriber)
    run.result("subscriber", subscriber.out.read_bytes())

    cli("BGSAVE")
    deadline = time.monotonic() + 20
    while b"rdb_bgsave_in_progress:1" in cli("INFO", "persistence") and time.monotonic() < deadline:
        time.sleep(0.05)
    run.result("bgsave", b"rdb_last_bgsave_status:ok" in cli("INFO", "persistence"))

    thousands = (50 if harness.LONG else 5) if run.both() else 1
    benchmark(run, port, "1 client", "-c", "1", "-n", f"{thousands}000", "-t", "set,get")
    benchmark(run, port, "50 clients", "-c", "50", "-n", f"{2 * thousands}000", "-t", "get,lrange_100")
    benchmark(run, port, "pipelined", "-c", "20", "-n", f"{4 * thousands}000", "-P", "16", "-t", "set,get", "-d", "512")
