/** The HTTP server of a run: its answers, its rejections, and its limits for slow clients. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { text as readText } from "node:stream/consumers";
import { after, test } from "node:test";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import { generousTimeoutMs } from "../../test/support/timeouts.js";
import { healthOf } from "./health.js";
import { readMetricsPage } from "./metrics-page.js";
import { RunFolder } from "./run-folder.js";
import { RunServer, type RunServerOptions } from "./run-server.js";

async function listen(options: Partial<RunServerOptions> = {}): Promise<RunServer> {
  const server = await RunServer.listen({ port: 0, ...options });
  after(() => server.close());
  return server;
}

/** A server that shows a running run. */
async function serve(options: Partial<RunServerOptions> = {}) {
  const path = makeFolder();
  const folder = RunFolder.create(path, { settings: {}, device: "x", heartbeatMs: 0 });
  after(() => folder.close());
  const server = await listen(options);
  server.show(path);
  return { path, folder, server };
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: IncomingHttpHeaders;
}

async function ask(url: string, method = "GET"): Promise<Answer> {
  // Not fetch(), which takes a tenth of a second to load.
  const [response] = (await once(request(url, { method }).end(), "response")) as [IncomingMessage];
  return { status: response.statusCode ?? 0, text: await readText(response), headers: response.headers };
}

/** The bytes that the server sends in reply to a client's bytes, until it ends the connection. */
async function exchange({ url }: RunServer, bytes: string | Buffer): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let text = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    text += chunk;
  });
  // The test expects an answer and a closed connection; the client may see a reset.
  socket.on("error", () => undefined);
  socket.write(bytes);
  await once(socket, "close");
  return text;
}

test("/metrics is the run's page, with the format's media type", async () => {
  const { path, folder, server } = await serve();
  folder.noteProgress({ step: 17, figures: { loss: 0.5 } });
  for (const page of ["/metrics", "/metrics?name[]=holdfast_step"]) {
    const { status, text, headers } = await ask(server.url + page);
    assert.deepEqual([status, text], [200, readMetricsPage(path)]);
    assert.equal(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert.match(text, /^holdfast_step 17$/m);
  }
});

test("/healthz agrees with the health command: 200 for a healthy run, else 503", async () => {
  const { path, folder, server } = await serve();
  assert.deepEqual((await ask(`${server.url}/healthz`)).status, 200);
  folder.end({ state: "failed", exitCode: 1, reason: "NOT_FINITE" });
  const { status, text } = await ask(`${server.url}/healthz`);
  const { state, reason } = healthOf(path);
  assert.deepEqual([status, text], [503, `${state}: ${reason}\n`]);
});

test("without a run, both pages say so", async () => {
  const server = await listen();
  for (const page of ["/metrics", "/healthz"]) assert.equal((await ask(server.url + page)).status, 503);
  server.show(makeFolder());
  for (const page of ["/metrics", "/healthz"]) assert.equal((await ask(server.url + page)).status, 503);
});

test("a damaged status gives an answer, not a crash", async () => {
  const { path, server } = await serve();
  writeFileSync(join(path, "status.json"), '{"state":');
  const { status, text } = await ask(`${server.url}/metrics`);
  assert.equal(status, 500);
  assert.match(text, /status\.json is not JSON/);
  assert.equal((await ask(`${server.url}/healthz`)).status, 503);
});

test("other paths are not found, and other methods are not allowed", async () => {
  const { server } = await serve();
  for (const page of ["/", "/metrics/", "/Metrics", "/constructor", "/%2e%2e/status.json", "/status.json"])
    assert.equal((await ask(server.url + page)).status, 404, page);
  for (const method of ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"]) {
    const { status, headers } = await ask(`${server.url}/metrics`, method);
    assert.deepEqual([status, headers.allow], [405, "GET"], method);
  }
});

test("a request that is too large is rejected, and a body is not waited for", async () => {
  const { server } = await serve();
  const large = `GET /metrics HTTP/1.1\r\nHost: x\r\nX-Large: ${"x".repeat(20_000)}\r\n\r\n`;
  assert.match(await exchange(server, large), /^HTTP\/1\.1 431 /);
  const { host } = new URL(server.url);
  const body = `POST /metrics HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 1000000000\r\n\r\nfirst bytes`;
  assert.match(await exchange(server, body), /^HTTP\/1\.1 405 /);
  assert.match(await exchange(server, "what is this\r\n\r\n"), /^HTTP\/1\.1 400 /);
});

test("an incomplete request is ended, and others are served meanwhile", async () => {
  const { server } = await serve({ timeoutMs: 500 });
  const slow = exchange(server, "GET /metrics HTTP/1.1\r\nHost: x\r\n");
  const silent = exchange(server, "");
  assert.equal((await ask(`${server.url}/metrics`)).status, 200);
  assert.doesNotMatch(await slow, / 200 /);
  // Node ends a silent connection with or without an answer, depending on which of its two timers fires first.
  assert.match(await silent, /^(HTTP\/1\.1 408 |$)/);
});

test("each answer ends its connection", async () => {
  const { server } = await serve();
  const two = `GET /metrics HTTP/1.1\r\nHost: ${new URL(server.url).host}\r\n\r\n`.repeat(2);
  assert.equal((await exchange(server, two)).match(/HTTP\/1\.1 200/g)?.length, 1);
});

test("an occupied port and a foreign address are bad settings, reported in one line", async () => {
  const holder = createServer().listen(0, "127.0.0.1");
  await once(holder, "listening");
  const { port } = holder.address() as AddressInfo;
  const rejected = (message: RegExp) => ({ code: "BAD_SETTING", message });
  await assert.rejects(
    RunServer.listen({ port }),
    rejected(
      new RegExp(
        `^Metrics can't be served on 127\\.0\\.0\\.1, port ${port}: EADDRINUSE\\. [^\\n]*--metrics-port`,
      ),
    ),
  );
  await assert.rejects(
    RunServer.listen({ port: 0, host: "203.0.113.7" }),
    rejected(/^[^\n]*EADDRNOTAVAIL[^\n]*--metrics-host/),
  );
  holder.close();
});

test("a host that is not an address is rejected: an empty one would listen everywhere", async () => {
  for (const host of ["", " ", "*", "-x", "127.0.0.1 ", "a/b"]) {
    await assert.rejects(RunServer.listen({ port: 0, host }), {
      code: "BAD_SETTING",
      message: /^Metrics can't be served on "[^\n]*": it is not an address\. Use --metrics-host 127\.0\.0\.1/,
    });
  }
});

test("on a loopback address, a request must have one Host header that names this machine", async () => {
  const { server } = await serve();
  const { port } = new URL(server.url);
  const get = (...hosts: string[]): Promise<string> =>
    exchange(server, `GET /metrics HTTP/1.1\r\n${hosts.map((host) => `Host: ${host}\r\n`).join("")}\r\n`);
  for (const host of [`127.0.0.1:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`])
    assert.match(await get(host), /^HTTP\/1\.1 200 /, host);
  for (const host of ["evil.example", `evil.example:${port}`, "127.0.0.1", `127.0.0.1:1${port}`])
    assert.match(
      await get(host),
      /^HTTP\/1\.1 403 [\s\S]*The Host header is .*\. Use one of: 127\.0\.0\.1:/,
      host,
    );
  assert.match(await get(`127.0.0.1:${port}`, "evil.example"), /^HTTP\/1\.1 400 /);
  assert.match(await exchange(server, "GET /healthz HTTP/1.0\r\n\r\n"), /^HTTP\/1\.1 200 /);
});

test("on other addresses, a request may use any single host name", async () => {
  const { server } = await serve({ host: "0.0.0.0" });
  const ask = `GET /metrics HTTP/1.1\r\nHost: run-7.monitoring:80\r\n\r\n`;
  assert.match(await exchange(server, ask), /^HTTP\/1\.1 200 /);
});

test("many idle connections do not block a probe", async () => {
  const { server } = await serve();
  const { hostname, port } = new URL(server.url);
  const count = effort({ quick: 100, thorough: 300 });
  const idle = Array.from({ length: count }, () => connect(Number(port), hostname));
  after(() => {
    for (const socket of idle) socket.destroy();
  });
  for (const socket of idle) socket.on("error", () => undefined);
  await Promise.all(idle.map((socket) => once(socket, "connect")));
  assert.equal((await ask(`${server.url}/healthz`)).status, 200);
  for (const socket of idle) socket.write("GET /");
  assert.equal((await ask(`${server.url}/healthz`)).status, 200);
});

test("it listens on the loopback address by default", async () => {
  assert.match((await listen()).url, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.match((await listen({ host: "0.0.0.0" })).url, /^http:\/\/0\.0\.0\.0:\d+$/);
});

test("it does not keep a process alive, not even with a silent client", () => {
  const program = `
    import { connect } from "node:net";
    const { RunServer } = await import(${JSON.stringify(new URL("./run-server.js", import.meta.url).href)});
    const server = await RunServer.listen({ port: 0, timeoutMs: 600_000 });
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1");
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.unref();
    console.log("the end");
  `;
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    ...{ encoding: "utf8", timeout: generousTimeoutMs },
  });
  assert.deepEqual([status, stdout], [0, "the end\n"], stderr);
});

test("closing ends open connections, and is harmless when repeated", async () => {
  const { server } = await serve();
  const { url } = server;
  const open = exchange(server, "");
  const pending = request(`${url}/metrics`).end();
  await once(pending, "response");
  server.close();
  server.close();
  assert.equal(await open, "");
  await assert.rejects(ask(`${url}/metrics`));
});
