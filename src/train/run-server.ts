/**
 * A small HTTP server beside a run, for monitoring many runs: `/metrics` for Prometheus and `/healthz` for probes. It reads the run's
 * folder and nothing else, so it can't disturb the training; it never keeps the process alive; and while the training holds the
 * process's one thread, as it does when a step is compiled, it answers late.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { errorCode } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { healthOf } from "./health.js";
import { metricsPageType, readMetricsPage } from "./metrics-page.js";
import { checkingIntervalOf, limitConnections } from "./serving/connections.js";
import { hostsIn, hostsOf, isAddress, isLoopback } from "./serving/hosts.js";

export interface RunServerOptions {
  /** 0 takes any that is free. */
  readonly port: number;
  /**
   * The address to listen at; default: 127.0.0.1, which other machines can't reach. There a request must name this machine
   * as its host. At another address any host name is answered, as monitoring uses names of its own.
   */
  readonly host?: string | undefined;
  /** How long a request may take to arrive, and a connection may be idle, in milliseconds; 5000 unless given. */
  readonly timeoutMs?: number;
}

interface Answer {
  readonly status: 200 | 400 | 403 | 404 | 405 | 500 | 503;
  readonly text: string;
  readonly type?: string;
}

/** A request is a line and a few headers; what is larger is rejected before it is read. */
const requestBytes = 8192;

export class RunServer {
  readonly #server: Server;
  /** The hosts that a request may name; undefined where any may be. */
  #hosts: ReadonlySet<string> | undefined;
  #path: string | undefined;

  private constructor(timeoutMs: number) {
    this.#server = createServer(
      {
        maxHeaderSize: requestBytes,
        connectionsCheckingInterval: Math.min(1000, checkingIntervalOf({ patienceMs: timeoutMs })),
      },
      (request, response) => send(response, this.#answer(request)),
    );
    limitConnections(this.#server, { patienceMs: timeoutMs });
    this.#server.setTimeout(timeoutMs, (socket) => socket.destroy());
    this.#server.on("connection", (socket) => socket.unref());
  }

  /** Listens; an address that can't be had is BAD_SETTING. Until a run is shown every page says that there is none. */
  static async listen({ port, host = "127.0.0.1", timeoutMs = 5000 }: RunServerOptions): Promise<RunServer> {
    if (!isAddress(host)) throw noAddress(host, port);
    const server = new RunServer(timeoutMs);
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", (cause) => reject(notServed(host, port, cause)));
      server.#server.listen(port, host, resolve);
    });
    // What fails from here on is one connection's trouble, and no reason to end a run.
    server.#server.on("error", () => undefined);
    server.#server.unref();
    const bound = (server.#server.address() as AddressInfo).port;
    if (isLoopback(host)) server.#hosts = hostsOf(host, bound);
    return server;
  }

  get url(): string {
    const { address, port, family } = this.#server.address() as AddressInfo;
    return `http://${family === "IPv6" ? `[${address}]` : address}:${port}`;
  }

  /** From now on the pages tell of the run in this folder. */
  show(path: string): void {
    this.#path = path;
  }

  /** Harmless when repeated. */
  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(request: IncomingMessage): Answer {
    const { method, url = "/" } = request;
    // Simple probes speak HTTP/1.0 and name no host; browsers always do.
    const [host, ...others] = hostsIn(request);
    if (others.length > 0) return { status: 400, text: "The request has several Host headers. Send one.\n" };
    if (host !== undefined && this.#hosts?.has(host) === false)
      return {
        status: 403,
        text: `The Host header is ${host}. Use one of: ${[...this.#hosts].join(", ")}.\n`,
      };
    const [page = "/"] = url.split("?");
    const pageOf = Object.hasOwn(pages, page) ? pages[page as keyof typeof pages] : undefined;
    if (!pageOf) return { status: 404, text: `There are ${Object.keys(pages).join(" and ")}.\n` };
    if (method !== "GET") return { status: 405, text: "GET is all there is.\n" };
    if (this.#path === undefined) return { status: 503, text: "The run has not begun.\n" };
    try {
      return pageOf(this.#path);
    } catch (error) {
      return { status: 500, text: `${error instanceof Error ? error.message : error}\n` };
    }
  }
}

const pages = {
  "/metrics": (path: string): Answer => {
    const text = readMetricsPage(path);
    return text === undefined
      ? { status: 503, text: "The run has not begun.\n" }
      : { status: 200, text, type: metricsPageType };
  },
  "/healthz": (path: string): Answer => {
    const { state, reason, exitCode } = healthOf(path);
    return { status: exitCode === 0 ? 200 : 503, text: `${state}: ${reason}\n` };
  },
} as const;

/** Each answer ends its connection: scrapes are seconds apart, and what else a client sends is not read. */
function send(response: ServerResponse, { status, text, type = "text/plain; charset=utf-8" }: Answer): void {
  response.on("error", () => undefined);
  response.writeHead(status, {
    "content-type": type,
    "content-length": Buffer.byteLength(text),
    connection: "close",
    ...(status === 405 && { allow: "GET" }),
  });
  response.end(text);
}

function noAddress(host: string, port: number): HoldfastError {
  return new HoldfastError(
    "BAD_SETTING",
    `Metrics can't be served at "${host}": it is no address. Give --metrics-host 127.0.0.1 for this machine alone, or 0.0.0.0 for all of its addresses.`,
    { numbers: { host, port } },
  );
}

function notServed(host: string, port: number, cause: Error): HoldfastError {
  const reason = errorCode(cause) ?? "";
  const wayOut =
    reason === "EADDRINUSE"
      ? "Another program listens there: give another --metrics-port, or end it."
      : "Give another --metrics-port or --metrics-host.";
  return new HoldfastError(
    "BAD_SETTING",
    `Metrics can't be served on ${host}, port ${port}: ${reason}. ${wayOut}`,
    { numbers: { host, port }, cause },
  );
}
