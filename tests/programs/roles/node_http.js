// A web server on Node.js for files of a folder, and a client of it, both of which write and read files of their own where connections
// were before. The client prints what it gets, and at last requests a second.
// Usage: node_http.js server|client PORT FOLDER
"use strict";
const childProcess = require("child_process");
const crypto = require("crypto");
const events = require("events");
const fs = require("fs");
const http = require("http");
const net = require("net");
const path = require("path");

const [role, port, folder] = process.argv.slice(2);
const kClients = 200;
const kFiles = 300;

const digest = (bytes) => `${bytes.length} bytes ${crypto.createHash("sha256").update(bytes).digest("hex").slice(0, 16)}`;
const pattern = (size, seed) => crypto.createHash("shake128", { outputLength: size }).update(String(seed)).digest();

// How many of some files hold what was written, all open at the same time, so that they get as many descriptors.
async function ownFiles(name) {
  const content = Array.from({ length: kFiles }, (_, i) => pattern(1000 + 97 * i, `${name} ${i}`));
  const places = content.map((_, i) => path.join(folder, `${name}.${i}`));
  const written = await Promise.all(places.map((place) => fs.promises.open(place, "w")));
  await Promise.all(written.map((file, i) => file.writeFile(content[i])));
  await Promise.all(written.map((file) => file.close()));
  const opened = await Promise.all(places.map((place) => fs.promises.open(place)));
  const found = await Promise.all(opened.map((file) => file.readFile()));
  await Promise.all(opened.map((file) => file.close()));
  // By way of the synchronous calls, too.
  const right = content.filter((bytes, i) => bytes.equals(found[i]) && bytes.equals(fs.readFileSync(places[i]))).length;
  await Promise.all(places.map((place) => fs.promises.unlink(place)));
  return `${right} of ${kFiles} files`;
}

// What a child gives back of what it gets, by pipes.
async function throughChild(bytes) {
  const child = childProcess.spawn("/bin/cat", { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(bytes);
  return digest(await collect(child.stdout));
}

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

function serve() {
  const server = http.createServer(async (request, response) => {
    const [, what, name] = request.url.split("/");
    if (what === "answer") {
      response.end("an answer\n");
    } else if (what === "file") {
      const place = path.join(folder, name);
      response.setHeader("Content-Length", fs.statSync(place).size);
      fs.createReadStream(place).pipe(response);
    } else if (what === "store") {
      const place = path.join(folder, name);
      request.pipe(fs.createWriteStream(place)).on("finish", () => response.end(digest(fs.readFileSync(place))));
    } else if (what === "connections") {
      server.getConnections((error, count) => response.end(String(count)));
    } else if (what === "own") {
      response.end(`${await ownFiles("server")}, child ${await throughChild(pattern(500_000, "child"))}`);
    } else {
      response.statusCode = 404;
      response.end();
    }
  });
  server.keepAliveTimeout = 60_000;
  server.listen({ port: Number(port), host: "127.0.0.1", backlog: 511 });
}

async function ask(agent, url, body) {
  const request = http.request({ host: "127.0.0.1", port: Number(port), path: url, agent, method: body ? "POST" : "GET" });
  request.end(body);
  const [response] = await events.once(request, "response");
  const bytes = await collect(response);
  return response.statusCode === 200 ? bytes : Buffer.from(`${response.statusCode} ${bytes}`);
}

// Clients that are there at the same time, each with one request, and go; ends when the server has seen all of them go.
async function comeAndGo(agent, url) {
  const sockets = Array.from({ length: kClients }, () => net.connect({ port: Number(port), host: "127.0.0.1" }));
  await Promise.all(sockets.map((socket) => events.once(socket, "connect")));
  const answers = sockets.map((socket) => collect(socket));
  for (const socket of sockets) socket.write(`GET ${url} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n`);
  const found = new Set((await Promise.all(answers)).map((answer) => digest(answer.subarray(answer.indexOf("\r\n\r\n")))));
  while ((await ask(agent, "/connections")).toString() !== "1") await new Promise(setImmediate);
  return [...found].join(", ");
}

async function client() {
  const one = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const several = new http.Agent({ keepAlive: true, maxSockets: 16 });
  for (let generation = 0; generation < 2; ++generation) {
    console.log(`generation ${generation}: ${await comeAndGo(one, "/file/small")}`);
    console.log(`big ${digest(await ask(one, "/file/big"))}`);
    const right = await Promise.all(
      Array.from({ length: kFiles }, async (_, i) => (await ask(several, `/file/number.${i}`)).equals(pattern(30_000, i))));
    console.log(`${right.filter(Boolean).length} of ${kFiles} served right`);
    const stored = await Promise.all(
      Array.from({ length: 20 }, async (_, i) => (await ask(several, `/store/stored.${i}`, pattern(100_000, i))).toString()));
    console.log(`stored ${stored.join(", ")}`);
    console.log(`server: ${await ask(one, "/own")}`);
    several.destroy();
    console.log(`client: ${await ownFiles("client")}, child ${await throughChild(pattern(400_000, "child"))}`);
  }
  console.log(`missing ${await ask(one, "/missing")}`);

  const requests = process.env.LEAT_PROGRAMS_LONG ? 20_000 : 2000;
  const begin = process.hrtime.bigint();
  await Promise.all(Array.from({ length: 16 }, async () => {
    for (let i = 0; i < requests / 16; ++i) await ask(several, "/answer");
  }));
  console.log(requests / (Number(process.hrtime.bigint() - begin) / 1e9));
  process.exit();
}

role === "server" ? serve() : client();
