/**
 * Limits the connections of a server. Idle connections could keep other clients out, so only the newest idle ones are kept and an
 * active client is always served.
 */

import type { Server } from "node:http";
import type { Socket } from "node:net";

const maxConnections = 256;
/** Connections without a request in progress. */
const maxIdle = 128;

export interface ConnectionOptions {
  /** Max. time for a request's header, in milliseconds; default: 10,000. The other time limits are fractions and multiples of it. */
  readonly headerTimeoutMs?: number | undefined;
}

/** The interval at which Node checks for slow clients. */
export function checkingIntervalOf({ headerTimeoutMs = 10_000 }: ConnectionOptions): number {
  return Math.ceil(headerTimeoutMs / 10);
}

export function limitConnections(server: Server, { headerTimeoutMs = 10_000 }: ConnectionOptions): void {
  /** Oldest first. */
  const idle = new Set<Socket>();
  server.maxConnections = maxConnections;
  server.headersTimeout = headerTimeoutMs;
  server.requestTimeout = headerTimeoutMs;
  server.keepAliveTimeout = headerTimeoutMs / 2;
  // For clients that stop reading. Live connections get data at least every half of this time.
  server.timeout = 3 * headerTimeoutMs;
  server.maxRequestsPerSocket = 10_000;
  const keepIdle = (socket: Socket): void => {
    idle.add(socket);
    if (idle.size <= maxIdle) return;
    const [oldest] = idle;
    if (oldest) idle.delete(oldest);
    oldest?.destroy();
  };
  server.on("connection", (socket: Socket) => {
    keepIdle(socket);
    socket.once("close", () => idle.delete(socket));
  });
  server.on("request", ({ socket }, response) => {
    idle.delete(socket);
    response.once("close", () => {
      if (!socket.destroyed) keepIdle(socket);
    });
  });
}
