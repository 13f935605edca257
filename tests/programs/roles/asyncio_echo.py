"""An echo server on asyncio, and a client with 50 connections that prints digests and round trips a second."""
import asyncio
import hashlib
import sys
import time


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    await server.serve_forever()


async def talk(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = hashlib.sha256()
    for i in range(40):
        message = hashlib.shake_128(b"%d %d" % (number, i)).digest(1 + 997 * i % 5000)
        writer.write(message)
        found.update(await reader.readexactly(len(message)))
    big = hashlib.shake_128(b"%d" % number).digest(200_000)
    writer.write(big)
    writer.write_eof()
    found.update(await reader.read(-1))
    writer.close()
    await writer.wait_closed()
    return found.hexdigest()


async def ask(port):
    start = time.monotonic()
    for digest in await asyncio.gather(*(talk(port, number) for number in range(50))):
        print(digest)
    print(50 * 40 / (time.monotonic() - start))


asyncio.run({"server": serve, "client": ask}[sys.argv[1]](int(sys.argv[2])))
