/**
 * A small HTTP server inside a run: `/metrics` for Prometheus and `/healthz` for probes. It only reads the run's folder, so it can't
 * disturb the training. It never keeps the process alive. While the training blocks the main thread, for example during a
 * compilation, it answers late.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { errorCode } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import {
  checkingIntervalOf,
  hostsIn,
  hostsOf,
  isAddress,
  isLoopback,
  limitConnections,
} from "../http/index.js";
import { healthOf } from "./health.js";
import { metricsPageType, readMetricsPage } from "./metrics-page.js";

export interface RunServerOptions {
  /** 0 selects a free port. */
  readonly port: number;
  /**
   * The address to listen on; default: 127.0.0.1, which other machines can't reach. On a loopback address, a request must name
   * this machine in its Host header. On other addresses any host name is accepted, because monitoring systems use their own.
   */
  readonly host?: string | undefined;
  /** Max. time for a request to arrive and for a connection to be idle, in milliseconds; default: 5000. */
  readonly timeoutMs?: number;
}

interface Answer {
  readonly status: 200 | 400 | 403 | 404 | 405 | 500 | 503;
  readonly text: string;
  readonly type?: string;
}

/** Max. bytes of a request. */
const requestBytes = 8192;

export class RunServer {
  readonly #server: Server;
  /** The accepted Host headers; undefined accepts any. */
  #hosts: ReadonlySet<string> | undefined;
  #path: string | undefined;

  private constructor(timeoutMs: number) {
    this.#server = createServer(
      {
        maxHeaderSize: requestBytes,
        connectionsCheckingInterval: Math.min(1000, checkingIntervalOf({ headerTimeoutMs: timeoutMs })),
      },
      (request, response) => send(response, this.#answer(request)),
    );
    limitConnections(this.#server, { headerTimeoutMs: timeoutMs });
    this.#server.setTimeout(timeoutMs, (socket) => socket.destroy());
    this.#server.on("connection", (socket) => socket.unref());
  }

  /** Starts listening. Throws BAD_SETTING if the address is unavailable. Before `show`, every page answers 503. */
  static async listen({ port, host = "127.0.0.1", timeoutMs = 5000 }: RunServerOptions): Promise<RunServer> {
    if (!isAddress(host)) throw noAddress(host, port);
    const server = new RunServer(timeoutMs);
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", (cause) => reject(notServed(host, port, cause)));
      server.#server.listen(port, host, resolve);
    });
    // A later error concerns one connection only and must not end the run.
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

  /** Sets the run that the pages show. */
  show(path: string): void {
    this.#path = path;
  }

  /** Does nothing if it is closed. */
  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(request: IncomingMessage): Answer {
    const { method, url = "/" } = request;
    // Simple probes use HTTP/1.0 without a Host header; browsers always send one.
    const [host, ...others] = hostsIn(request);
    if (others.length > 0) return { status: 400, text: "The request has several Host headers. Send one.\n" };
    if (host !== undefined && this.#hosts?.has(host) === false)
      return {
        status: 403,
        text: `The Host header is ${host}. Use one of: ${[...this.#hosts].join(", ")}.\n`,
      };
    const [page = "/"] = url.split("?");
    const pageOf = Object.hasOwn(pages, page) ? pages[page as keyof typeof pages] : undefined;
    if (!pageOf) return { status: 404, text: `Not found. Use ${Object.keys(pages).join(" or ")}.\n` };
    if (method !== "GET") return { status: 405, text: "Only GET is allowed.\n" };
    if (this.#path === undefined) return { status: 503, text: "The run has not started.\n" };
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
      ? { status: 503, text: "The run has not started.\n" }
      : { status: 200, text, type: metricsPageType };
  },
  "/healthz": (path: string): Answer => {
    const { state, reason, exitCode } = healthOf(path);
    return { status: exitCode === 0 ? 200 : 503, text: `${state}: ${reason}\n` };
  },
} as const;

/** Each answer closes its connection: scrapes are seconds apart, and further requests are not read. */
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
    `Metrics can't be served on "${host}": it is not an address. Use --metrics-host 127.0.0.1 for this machine only, or 0.0.0.0 for all addresses.`,
    { numbers: { host, port } },
  );
}

function notServed(host: string, port: number, cause: Error): HoldfastError {
  const reason = errorCode(cause) ?? "";
  const advice =
    reason === "EADDRINUSE"
      ? "Another program uses this port. Use another --metrics-port, or end that program."
      : "Use another --metrics-port or --metrics-host.";
  return new HoldfastError(
    "BAD_SETTING",
    `Metrics can't be served on ${host}, port ${port}: ${reason}. ${advice}`,
    { numbers: { host, port }, cause },
  );
}
