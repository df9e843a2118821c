/** Test clients of the inspector: normal requests, raw bytes, and event streams. */

import { once } from "node:events";
import { get, type IncomingHttpHeaders, request } from "node:http";
import { connect, type Socket } from "node:net";
import { after } from "node:test";
import { type Inspector, type InspectorOptions, openInspector } from "../../src/inspect/index.js";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface TestInspector extends Inspector {
  readonly port: number;
  /** Sends a request with a browser's headers, and others if passed. */
  ask(path: string, headers?: Readonly<Record<string, string>>, method?: string): Promise<Answer>;
  /** The body of an answer. */
  json<Value>(path: string): Promise<Value>;
}

/** Open until the file's last test has ended. */
export async function openTestInspector(options: InspectorOptions): Promise<TestInspector> {
  const inspector = await openInspector(options);
  after(() => inspector.close());
  const port = Number(new URL(inspector.url).port);
  const ask: TestInspector["ask"] = (path, headers = {}, method = "GET") =>
    new Promise((resolve, reject) => {
      const sentRequest = request(
        { host: "127.0.0.1", port, path, method, headers, agent: false },
        (response) => {
          let text = "";
          response.setEncoding("utf8");
          response.on("data", (chunk: string) => {
            text += chunk;
          });
          response.on("end", () =>
            resolve({ status: response.statusCode ?? 0, headers: response.headers, text }),
          );
          response.on("error", reject);
        },
      );
      sentRequest.on("error", reject);
      sentRequest.end();
    });
  const json = async <Value>(path: string): Promise<Value> => {
    const { status, text } = await ask(path);
    if (status !== 200) throw new Error(`${path}: ${status} ${text}`);
    return JSON.parse(text) as Value;
  };
  return { ...inspector, port, ask, json };
}

/** Sends bytes and returns the answer until the connection closes. */
export async function exchange(port: number, bytes: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    text += chunk;
  });
  // A rejected client may still be sending.
  socket.on("error", () => undefined);
  socket.write(bytes, "latin1");
  await once(socket, "close");
  return text;
}

/** A client that never completes its request. */
export async function openSlowClient(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  await once(socket, "connect");
  socket.write("GET /api/runs HTTP/1.1\r\nHost: ");
  return socket;
}

export interface LiveEvent {
  readonly name: string;
  readonly data: unknown;
}

/** Listens to a run. `next` waits for a matching event and skips others. */
export async function listenTo(port: number, path: string) {
  const waiting: LiveEvent[] = [];
  let wake = (): void => undefined;
  const sentRequest = get({ host: "127.0.0.1", port, path, agent: false });
  const [response] = (await once(sentRequest, "response")) as [import("node:http").IncomingMessage];
  let text = "";
  response.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
      if (name !== undefined && data !== undefined) waiting.push({ name, data: JSON.parse(data) as unknown });
    }
    wake();
  });
  response.on("error", () => undefined);
  const next = async (fits: (event: LiveEvent) => boolean): Promise<LiveEvent> => {
    for (;;) {
      for (let event = waiting.shift(); event; event = waiting.shift()) if (fits(event)) return event;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return { status: response.statusCode ?? 0, next, response, close: () => sentRequest.destroy() };
}
