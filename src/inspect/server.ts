/** The inspector's server: serves a page and its data from a folder of runs to clients that may see them, and writes nothing. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { HoldfastError } from "../errors/index.js";
import {
  type ConnectionOptions,
  checkingIntervalOf,
  isAddress,
  isLoopback,
  limitConnections,
  urlHost,
} from "../train/index.js";
import { rawRejection, send, sendRejection } from "./answers.js";
import {
  checkToken,
  cookieOf,
  type Gate,
  isToken,
  makeGate,
  makeToken,
  type Rejection,
  reject,
} from "./gate.js";
import { Router, type RouterOptions } from "./router.js";
import { findShown } from "./run-list.js";

export interface InspectorOptions extends RouterOptions, ConnectionOptions {
  /** A folder of runs, or a run's own. */
  readonly root: string;
  /** Which run the page opens first, by its name. */
  readonly run?: string | undefined;
  /** 0, a free one, unless given. */
  readonly port?: number | undefined;
  /** 127.0.0.1 unless given. */
  readonly host?: string | undefined;
  /** Asked of every request. Made at random for a host that others can reach, unless given. */
  readonly token?: string | undefined;
}

export interface Inspector {
  /** Where the page is; with the token in it, where there is one. */
  readonly url: string;
  close(): Promise<void>;
}

/** More than this of headers is rejected. */
const maxHeaderBytes = 8192;

/** Serves runs until it is closed. */
export async function openInspector(options: InspectorOptions): Promise<Inspector> {
  const { port = 0, host = "127.0.0.1" } = options;
  if (!isAddress(host)) throw new HoldfastError("BAD_ARGUMENT", `"${host}" is no address to listen at.`);
  const token = options.token ?? (isLoopback(host) ? undefined : makeToken());
  if (token !== undefined && !isToken(token)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `A token has 8 to 200 letters, digits and "._~-"; this one has ${token.length} characters or others.`,
    );
  }
  const shown = findShown(options.root);
  const run = options.run ?? shown.run;
  const router = new Router({ root: shown.root, run }, options);
  let gate: Gate | undefined;
  const connectionsCheckingInterval = checkingIntervalOf(options);
  const server = createServer({ maxHeaderSize: maxHeaderBytes, connectionsCheckingInterval });
  limitConnections(server, options);
  server.on("request", (request, response) => {
    if (gate) void answer(gate, router, request, response);
  });
  server.on("clientError", rejectBroken);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => reject(cannotListen(host, port, cause)));
    server.listen({ host, port }, resolve);
  });
  const bound = (server.address() as AddressInfo).port;
  gate = makeGate(host, bound, token);
  const shownHost = host === "0.0.0.0" || host === "::" ? "localhost" : host;
  const query = token === undefined ? "" : `?token=${token}`;
  const place = run === undefined ? "" : `#/${encodeURIComponent(run)}`;
  return {
    url: `http://${urlHost(shownHost, bound)}/${query}${place}`,
    close: () =>
      new Promise((resolve) => {
        router.close();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  gate: Gate,
  router: Router,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  try {
    const rejection = reject(gate, request);
    if (rejection) return sendRejection(response, rejection);
    const { path, query } = splitUrl(request.url ?? "/");
    const { isGood, isFromUrl } = checkToken(gate, request, query);
    if (!isGood) {
      const error = "This needs the token: open the address that the inspector printed.";
      return sendRejection(response, { status: 401, error });
    }
    if (isFromUrl) response.setHeader("Set-Cookie", cookieOf(gate));
    if (isFromUrl && path === "/") {
      // So that the token does not stay where it can be read over a shoulder. The part behind # comes along by itself.
      response.writeHead(303, { Location: "/", "Referrer-Policy": "no-referrer", "Content-Length": 0 }).end();
      return;
    }
    const body = await router.route(path, query, request, response);
    if (body === "answered") return;
    if ("status" in body) sendRejection(response, body);
    else await send(request, response, body);
  } catch (error) {
    fail(response, error);
  }
}

/** What can't be read is told; a client that went away is nobody to tell. */
function fail(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const message = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
  sendRejection(response, { status: 503, error: message });
}

function splitUrl(url: string): { readonly path: string; readonly query: URLSearchParams } {
  const mark = url.indexOf("?");
  const path = mark < 0 ? url : url.slice(0, mark);
  return { path, query: new URLSearchParams(mark < 0 ? "" : url.slice(mark + 1)) };
}

/** What is no request of HTTP, or too large for one. */
function rejectBroken({ code }: NodeJS.ErrnoException, socket: Socket): void {
  const rejection: Rejection =
    code === "HPE_HEADER_OVERFLOW"
      ? { status: 431, error: `The head of the request is larger than ${maxHeaderBytes} bytes.` }
      : { status: 400, error: "This is no request that could be answered." };
  const reason = rejection.status === 431 ? "Request Header Fields Too Large" : "Bad Request";
  if (socket.writable && code !== "ECONNRESET") socket.end(rawRejection(rejection, reason));
  // Not before what was written is out, and whether or not the other side goes on sending.
  socket.destroySoon();
}

function cannotListen(host: string, port: number, cause: NodeJS.ErrnoException): HoldfastError {
  const why =
    cause.code === "EADDRINUSE"
      ? "something else listens there; give another --port, or 0 for a free one"
      : cause.code === "EACCES"
        ? "the system does not allow it; give a --port above 1023"
        : cause.message;
  return new HoldfastError("BAD_ARGUMENT", `The inspector can't listen at ${host}, port ${port}: ${why}.`, {
    cause,
    numbers: { port },
  });
}
