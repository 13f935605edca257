"""A server on uvloop that echoes, and between connections writes and reads files and pipes; its client does the same and prints
what it gets, and at last round trips a second.

Usage: uvloop_files.py server|client PORT FOLDER
"""
import asyncio
import hashlib
import pathlib
import sys
import time

import uvloop

CLIENTS = 100
FILES = 300
port, folder = int(sys.argv[2]), pathlib.Path(sys.argv[3])


def pattern(size, seed):
    return hashlib.shake_128(str(seed).encode()).digest(size)


def own_files(name):
    """How many of some files hold what was written; all are open at the same time, so that they get as many descriptors."""
    contents = [pattern(1000 + 97 * i, f"{name} {i}") for i in range(FILES)]
    files = [(folder / f"{name}.{i}").open("w+b") for i in range(FILES)]
    for file, content in zip(files, contents):
        file.write(content)
        file.flush()
        file.seek(0)
    same = sum(file.read() == content for file, content in zip(files, contents))
    for file in files:
        file.close()
    kept = sum((folder / f"{name}.{i}").read_bytes() == content for i, content in enumerate(contents))
    return f"{same} of {FILES} files the same, {kept} kept"


async def through_child(data):
    """What a child gives back of what it gets, by pipes."""
    child = await asyncio.create_subprocess_exec("/bin/cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate(data)
    return hashlib.sha256(output).hexdigest()[:16]


class Server:
    def __init__(self):
        self.connections = 0

    async def answer(self, reader, writer):
        self.connections += 1
        # The first byte says what is wanted.
        what = await reader.readexactly(1)
        if what == b"e":
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        elif what == b"c":
            writer.write(b"%d" % self.connections)
        else:
            writer.write(f"{own_files('server')}, child {await through_child(pattern(300_000, 'child'))}".encode())
        writer.close()
        await writer.wait_closed()
        self.connections -= 1

    async def serve(self):
        server = await asyncio.start_server(self.answer, "127.0.0.1", port, backlog=511)
        await server.serve_forever()


async def ask(what):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(what)
    answer = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def echo(number, rounds, size):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"e")
    right = 0
    for i in range(rounds):
        message = pattern(1 + 997 * i % size, f"{number} {i}")
        writer.write(message)
        right += await reader.readexactly(len(message)) == message
    writer.write_eof()
    right += await reader.read(-1) == b""
    writer.close()
    await writer.wait_closed()
    return right


async def client():
    for generation in range(3):
        right = await asyncio.gather(*(echo(number, 10, 20_000) for number in range(CLIENTS)))
        print(f"generation {generation}: {sum(right)} of {11 * CLIENTS} right")
        # The one that asks is a connection, too.
        while await ask(b"c") != "1":
            pass
        print("server:", await ask(b"f"))
        print("client:", own_files("client"), "child", await through_child(pattern(200_000, "child")))
    begin = time.monotonic()
    await asyncio.gather(*(echo(number, 100, 1000) for number in range(20)))
    print(20 * 100 / (time.monotonic() - begin))


uvloop.install()
asyncio.run({"server": Server().serve, "client": client}[sys.argv[1]]())
