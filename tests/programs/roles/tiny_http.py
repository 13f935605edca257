"""A web server of few lines, with keep-alive: tells its name argv[2] on port argv[1], sends argv[3] bytes for /big, and gives back
what is posted."""
import asyncio
import hashlib
import sys

port, name, size = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
BIG = hashlib.shake_128(b"big").digest(size)


async def serve_one(reader, writer):
    """One request; says whether another one may come."""
    method, path, _ = (await reader.readuntil(b"\r\n")).split()
    headers = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        header, _, value = line.partition(b":")
        headers[header.lower()] = value.strip().lower()
    body = await reader.readexactly(int(headers.get(b"content-length", 0)))
    answer = body if method == b"POST" else BIG if path == b"/big" else name + b" " + path + b"\n"
    last = headers.get(b"connection") == b"close"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Name: %s\r\n%s\r\n" % (
        len(answer), name, b"Connection: close\r\n" if last else b""))
    writer.write(answer)
    await writer.drain()
    return not last


async def serve_connection(reader, writer):
    try:
        while await serve_one(reader, writer):
            pass
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def main():
    server = await asyncio.start_server(serve_connection, "127.0.0.1", port, backlog=511)
    await server.serve_forever()


asyncio.run(main())
