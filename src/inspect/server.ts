/** The inspector's server: serves a page and its data from a folder of runs to authorised clients. It writes nothing. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import {
  answerBrokenRequests,
  type ConnectionOptions,
  checkingIntervalOf,
  isLoopback,
  limitConnections,
  listen,
  makeToken,
  requireToken,
  urlHost,
} from "../http/index.js";
import { type AccessPolicy, checkToken, cookieOf, makeAccessPolicy, rejectionOf } from "./access.js";
import { send, sendRejection } from "./responses.js";
import { Router, type RouterOptions } from "./router.js";
import { findShown } from "./run-list.js";

export interface InspectorOptions extends RouterOptions, ConnectionOptions {
  /** A folder of runs, or a run's folder. */
  readonly root: string;
  /** The name of the run that the page opens first. */
  readonly run?: string | undefined;
  /** Default: 0, a free port. */
  readonly port?: number | undefined;
  /** Default: 127.0.0.1. */
  readonly host?: string | undefined;
  /** Required in every request. Default: random if other machines can reach the host, else none. */
  readonly token?: string | undefined;
}

export interface Inspector {
  /** The page's address, with the token if there is one. */
  readonly url: string;
  close(): Promise<void>;
}

/** Max. bytes of headers. */
const maxHeaderBytes = 8192;

/** Serves runs until it is closed. */
export async function openInspector(options: InspectorOptions): Promise<Inspector> {
  const { port = 0, host = "127.0.0.1" } = options;
  const token = options.token ?? (isLoopback(host) ? undefined : makeToken());
  if (token !== undefined) requireToken(token);
  const shown = findShown(options.root);
  const run = options.run ?? shown.run;
  const router = new Router({ root: shown.root, run }, options);
  let policy: AccessPolicy | undefined;
  const connectionsCheckingInterval = checkingIntervalOf(options);
  const server = createServer({ maxHeaderSize: maxHeaderBytes, connectionsCheckingInterval });
  limitConnections(server, options);
  server.on("request", (request, response) => {
    if (policy) void answer(policy, router, request, response);
  });
  answerBrokenRequests(server, maxHeaderBytes, ({ error }) => ({ error }));
  const bound = await listen(server, "The inspector", { host, port });
  policy = makeAccessPolicy(host, bound, token);
  const shownHost = host === "0.0.0.0" || host === "::" ? "localhost" : host;
  const query = token === undefined ? "" : `?token=${token}`;
  const fragment = run === undefined ? "" : `#/${encodeURIComponent(run)}`;
  return {
    url: `http://${urlHost(shownHost, bound)}/${query}${fragment}`,
    close: () =>
      new Promise((resolve) => {
        router.close();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  policy: AccessPolicy,
  router: Router,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  try {
    const rejection = rejectionOf(policy, request);
    if (rejection) return sendRejection(response, rejection);
    const { path, query } = splitUrl(request.url ?? "/");
    const { isValid, isFromUrl } = checkToken(policy, request, query);
    if (!isValid) {
      const error = "A token is required. Open the address that the inspector printed.";
      return sendRejection(response, { status: 401, error });
    }
    if (isFromUrl) response.setHeader("Set-Cookie", cookieOf(policy));
    if (isFromUrl && path === "/") {
      // The redirect removes the token from the address bar. The browser keeps the fragment.
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

/** Answers an error, unless the client is gone. */
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
