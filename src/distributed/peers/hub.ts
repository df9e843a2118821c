/** The hub: a server in rank 0's process, to which every rank's thread is connected, rank 0's own too. It ends with its thread. */

import { createServer, type Server, type Socket } from "node:net";
import { formatDuration, systemClock } from "../../units/index.js";
import { type FromHub, LineReader, protocolVersion, type ToHub, toLine } from "./messages.js";
import { type Check, RankTable } from "./rank-table.js";

export interface HubOptions {
  readonly port: number;
  readonly size: number;
  /** Connections without it are closed; empty if ranks can't be given one. */
  readonly token: string;
  /** See `RankTable`. */
  readonly timeoutMs: number;
  /** How long ranks may take to connect. */
  readonly connectWithinMs: number;
}

/** How often ranks are checked and told that the hub is alive. */
export const tickMs = 200;
/** A stranger's connection is closed after this without a valid greeting. */
const greetingMs = 10_000;

export class Hub {
  readonly #options: HubOptions;
  readonly #table: RankTable;
  readonly #server: Server;
  readonly #sockets = new Map<number, Socket>();
  #hasRejectedAll = false;

  private constructor(options: HubOptions, server: Server) {
    this.#options = options;
    this.#server = server;
    this.#table = new RankTable(options.size, options.timeoutMs, systemClock);
    server.on("connection", (socket) => this.#greet(socket));
    setInterval(() => this.#tick(), tickMs);
  }

  /** Listens; the port is chosen by the system if it is 0. */
  static open(options: HubOptions): Promise<Hub> {
    return new Promise((resolve, reject) => {
      const server = createServer({ noDelay: true });
      server.once("error", reject);
      // At all interfaces: ranks on other machines connect.
      server.listen(options.port, () => resolve(new Hub(options, server)));
    });
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address ? address.port : 0;
  }

  #greet(socket: Socket): void {
    socket.on("error", () => socket.destroy());
    const timer = setTimeout(() => socket.destroy(), greetingMs);
    const reader = new LineReader();
    let rank: number | undefined;
    socket.on("data", (chunk: Buffer) => {
      let messages: unknown[];
      try {
        messages = reader.push(chunk);
      } catch {
        return void socket.destroy();
      }
      for (const message of messages as ToHub[]) {
        if (rank !== undefined) this.#receive(rank, message);
        else {
          rank = this.#admit(socket, message);
          if (rank === undefined) return;
          clearTimeout(timer);
        }
      }
    });
    socket.on("close", () => {
      clearTimeout(timer);
      if (rank !== undefined) this.#lose(rank, "its process has ended without a goodbye");
    });
  }

  /** The rank that a greeting names; undefined if it is rejected. */
  #admit(socket: Socket, message: ToHub): number | undefined {
    const { size, token } = this.#options;
    if (message?.type !== "hello" || message.token !== token) return void socket.destroy();
    const { protocol, rank, host, pid } = message;
    const why =
      protocol === protocolVersion
        ? this.#table.add({ rank, size: message.size, host, pid })
        : `rank ${rank} on ${host} has another version of Holdfast: its messages have version ${protocol}, those of rank 0 have version ${protocolVersion}`;
    if (why !== undefined) {
      socket.end(toLine({ type: "rejected", why }));
      this.#rejectAll(why);
      return undefined;
    }
    this.#sockets.set(rank, socket);
    if (this.#table.isComplete && this.#sockets.size === size)
      this.#sendAll({ type: "welcome", ranks: this.#table.identities });
    return rank;
  }

  #receive(rank: number, message: ToHub): void {
    if (message.type === "status") this.#table.update(rank, message);
    else if (message.type === "failed")
      this.#lose(rank, `it has failed: ${message.message.replace(/\.$/, "")}`);
    else if (message.type === "offer") this.#exchange(rank, message.name, message.value);
    else if (message.type === "bye") {
      this.#table.end(rank);
      if (this.#table.hasEnded) this.#sendAll({ type: "end" });
    }
  }

  #exchange(rank: number, name: string, value: unknown): void {
    const offers = this.#table.offer(rank, name, value);
    if (!offers) return;
    const names = offers.map((offer) => offer.name);
    if (new Set(names).size > 1) this.#sendAll({ type: "differ", names });
    else this.#sendAll({ type: "values", values: offers.map((offer) => offer.value) });
  }

  #tick(): void {
    const { connectWithinMs } = this.#options;
    if (!this.#table.isComplete) {
      const { ranks, forMs } = this.#table.missing;
      if (forMs > connectWithinMs) {
        const named =
          ranks.length > 8
            ? `${ranks.length} ranks have`
            : ranks.length > 1
              ? `Ranks ${ranks.join(", ")} have`
              : `Rank ${ranks[0]} has`;
        this.#rejectAll(`${named} not connected to rank 0 within ${formatDuration(connectWithinMs)}`);
      }
      return;
    }
    this.#tell(this.#table.check());
    this.#sendAll({ type: "tick", progress: this.#table.progress });
  }

  #lose(rank: number, why: string): void {
    const lost = this.#table.lose(rank, why);
    if (lost) this.#tell({ what: "lost", ranks: [lost] });
    if (this.#table.hasEnded) this.#sendAll({ type: "end" });
  }

  #tell({ what, ranks }: Check): void {
    if (ranks.length > 0) this.#sendAll({ type: "failure", what, ranks });
  }

  #rejectAll(why: string): void {
    if (this.#hasRejectedAll) return;
    this.#hasRejectedAll = true;
    this.#sendAll({ type: "rejected", why });
  }

  #sendAll(message: FromHub): void {
    const line = toLine(message);
    for (const socket of this.#sockets.values()) if (socket.writable) socket.write(line);
  }
}
