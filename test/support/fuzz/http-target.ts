/** The two servers, fuzzed: whatever bytes a client sends, the next proper request is answered. */

import { connect } from "node:net";
import { openInspector } from "../../../src/inspect/index.js";
import { RunServer } from "../../../src/train/index.js";
import { writeSampleRun } from "../sample-run.js";
import { generousTimeoutMs } from "../timeouts.js";
import type { FuzzTarget } from "./targets.js";

/** Stands for the server's own host in an input. */
const hostMark = "HOST";

const requests: readonly string[] = [
  "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
  "GET /metrics HTTP/1.1\r\nHost: HOST\r\nAccept: */*\r\nConnection: close\r\n\r\n",
  "GET /healthz HTTP/1.0\r\n\r\n",
  "HEAD /api/runs HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\n\r\n",
  "GET /api/runs/run HTTP/1.1\r\nHost: HOST\r\nCookie: a=b; c\r\nAuthorization: Bearer x\r\n\r\n",
  "GET /api/runs/run/steps?from=0&to=9&points=5 HTTP/1.1\r\nHost: HOST\r\n\r\n",
  'GET /api/runs/run/plans/0 HTTP/1.1\r\nHost: HOST\r\nIf-None-Match: "x"\r\n\r\n',
  "GET /api/runs/run/export/steps.csv HTTP/1.1\r\nHost: HOST\r\n\r\n",
  "GET /api/runs/run/export/memory-0.pickle HTTP/1.1\r\nHost: HOST\r\n\r\n",
  "GET /api/runs/run/live HTTP/1.1\r\nHost: HOST\r\nAccept: text/event-stream\r\n\r\n",
  "POST /api/runs HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
  "GET /%2e%2e/%00 HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\n\r\nGET / HTTP/1.1\r\n\r\n",
];

/** How long a response may keep an idle client; later output is ignored. */
const patienceMs = 30;
/** After this many inputs both servers must answer properly. */
const checkEvery = 25;

export const httpTarget: FuzzTarget = {
  seeds: () => requests.map((text) => new Uint8Array(Buffer.from(text))),
  async open(folder) {
    const { path } = writeSampleRun(folder, "run", { steps: 20 });
    const inspector = await openInspector({ root: folder });
    const server = await RunServer.listen({ port: 0, timeoutMs: generousTimeoutMs });
    server.show(path);
    const urls = [inspector.url, server.url];
    let count = 0;
    return async (input) => {
      const url = new URL(urls[count++ % 2] ?? "");
      const text = Buffer.from(input).toString("latin1").replaceAll(hostMark, url.host);
      await sendBytes(url, Buffer.from(text, "latin1"));
      if (count % checkEvery > 0) return;
      for (const url of [new URL("/api/runs", urls[0]), new URL("/healthz", urls[1])]) {
        const { status } = await fetch(url);
        if (status !== 200) throw new Error(`${url} was answered with ${status}`);
      }
    };
  },
};

function sendBytes({ hostname, port }: URL, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    socket.on("error", () => undefined);
    socket.once("close", () => resolve());
    socket.once("data", () => socket.destroySoon());
    socket.resume();
    socket.setTimeout(patienceMs, () => socket.destroy());
    socket.end(bytes);
  });
}
