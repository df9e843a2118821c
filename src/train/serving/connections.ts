/**
 * How many clients may be connected. Clients that hold connections without asking would keep others out; of those only the newest
 * are kept, so that a client that asks is always answered.
 */

import type { Server } from "node:http";
import type { Socket } from "node:net";

const maxConnections = 256;
/** Without a request that is being answered. */
const maxWaiting = 128;

export interface ConnectionOptions {
  /** How long the head of a request may take, in milliseconds; 10,000 unless given. Other limits follow from it. */
  readonly patienceMs?: number | undefined;
}

/** How often the system looks for who takes too long. */
export function checkingIntervalOf({ patienceMs = 10_000 }: ConnectionOptions): number {
  return Math.ceil(patienceMs / 10);
}

export function limitConnections(server: Server, { patienceMs = 10_000 }: ConnectionOptions): void {
  /** Oldest first. */
  const waiting = new Set<Socket>();
  server.maxConnections = maxConnections;
  server.headersTimeout = patienceMs;
  server.requestTimeout = patienceMs;
  server.keepAliveTimeout = patienceMs / 2;
  // An answer that is not taken is not sent for ever; who listens is told something in half of that time.
  server.timeout = 3 * patienceMs;
  server.maxRequestsPerSocket = 10_000;
  const wait = (socket: Socket): void => {
    waiting.add(socket);
    if (waiting.size <= maxWaiting) return;
    const [oldest] = waiting;
    if (oldest) waiting.delete(oldest);
    oldest?.destroy();
  };
  server.on("connection", (socket: Socket) => {
    wait(socket);
    socket.once("close", () => waiting.delete(socket));
  });
  server.on("request", ({ socket }, response) => {
    waiting.delete(socket);
    response.once("close", () => {
      if (!socket.destroyed) wait(socket);
    });
  });
}
