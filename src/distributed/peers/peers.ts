/**
 * The other ranks, as the main thread sees them: it exchanges small values with them, and learns from its thread when one is lost. All calls
 * return or throw within a time limit.
 */

import { networkInterfaces } from "node:os";
import { MessageChannel, type MessagePort, receiveMessageOnPort, type Worker } from "node:worker_threads";
import { HoldfastError } from "../../errors/index.js";
import { beat, formatDuration, heartbeatMemory, startThread, threadAdvice } from "../../units/index.js";
import type { WaitObserver } from "../communicator.js";
import type { OpenCommunicator } from "../nccl/abort.js";
import type { RankIdentity } from "./messages.js";
import type { FromThread, PeerThreadData, ToThread } from "./peer-thread.js";
import { SharedState } from "./shared-state.js";

export interface PeersOptions {
  readonly rank: number;
  readonly size: number;
  /** Where rank 0 listens. Undefined: at its addresses, and a port that the system chooses. */
  readonly master: { readonly host: string; readonly port: number } | undefined;
  /** Sends a text of rank 0 to every rank, by a way that exists already. Undefined: there is none, and all know `master`. */
  readonly share: ((text: string) => string) | undefined;
  /** How long a rank may be silent, or do nothing while others wait for it. */
  readonly timeoutMs: number;
  readonly connectWithinMs: number;
}

/** How long a rank's last words may take. */
const lastWordsMs = 500;
/** Of an error's message. */
const maxMessage = 2000;

export class Peers implements WaitObserver {
  readonly rank: number;
  readonly size: number;
  readonly #state = new SharedState();
  readonly #port: MessagePort;
  readonly #worker: Worker;
  readonly #identities: readonly RankIdentity[];
  #seenProgress = 0;
  #isOpen = true;

  /** Connects to all ranks, and returns when they are all there. */
  constructor(options: PeersOptions) {
    const { rank, size, master, share, timeoutMs, connectWithinMs } = options;
    this.rank = rank;
    this.size = size;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    port1.unref();
    // Without a way to share it, ranks have no secret.
    const token = share ? crypto.randomUUID() : "";
    const data: PeerThreadData = {
      ...{ rank, size, pid: process.pid, token, timeoutMs, connectWithinMs },
      ...{ state: this.#state.memory, heartbeat: heartbeatMemory(), port: port2 },
      listen: rank === 0 ? (master?.port ?? 0) : undefined,
    };
    const worker = startThread(new URL("./peer-thread.js", import.meta.url), data, [port2]);
    if (worker instanceof Error)
      throw new HoldfastError(
        "RANK_LOST",
        `No thread for the other ranks: ${worker.message} ${threadAdvice}.`,
        {
          cause: worker,
        },
      );
    this.#worker = worker;
    const own = rank === 0 ? this.#receive("listening", connectWithinMs) : undefined;
    const meeting: MeetingPoint = {
      hosts: master ? [master.host] : ownAddresses(),
      port: own?.port ?? master?.port ?? 0,
      token,
    };
    const shared = share
      ? (JSON.parse(share(rank === 0 ? JSON.stringify(meeting) : "")) as MeetingPoint)
      : meeting;
    this.#send({ type: "connect", ...shared, ...(rank === 0 && { hosts: ["127.0.0.1"] }) });
    // The hub rejects ranks that are missing after the same time, and names them.
    this.#identities = this.#receive("welcome", 2 * connectWithinMs + 1000).ranks;
  }

  get identities(): readonly RankIdentity[] {
    return this.#identities;
  }

  /** What every rank passes to the same call, in the order of ranks. JSON values. */
  exchange<T>(name: string, value: T): readonly T[] {
    this.begin(`the exchange of ${name}`);
    this.#send({ type: "offer", name, value });
    const { values } = this.#receive("values", Number.POSITIVE_INFINITY);
    this.end();
    return values as readonly T[];
  }

  /** Shows the ranks what this runtime does. */
  watch(status: SharedArrayBuffer): void {
    this.#send({ type: "runtime", status });
  }

  /** The thread aborts the communicator of GPUs if a rank is lost, unless the main thread ends it first. */
  watchCommunicator(opened: OpenCommunicator): void {
    this.#state.openCommunicator();
    this.#send({ type: "communicator", ...opened });
  }

  /** True if the main thread ends the communicator of GPUs; false if the thread has aborted it. */
  takeCommunicator(): boolean {
    return this.#state.takeCommunicator();
  }

  /** True while the thread is aborting the communicator of GPUs: that may never end. */
  get isAborting(): boolean {
    return this.#state.failure !== undefined && this.#state.isAborting;
  }

  begin(collective: string, bytes?: number): void {
    this.poll();
    this.#state.beginWait(bytes === undefined ? collective : `${collective} of ${bytes} bytes`);
  }

  /** Throws if a rank is lost. */
  poll(): void {
    const { failure, peerProgress } = this.#state;
    if (failure) {
      this.#state.markFailureSeen();
      throw rankError(failure.what === "lost" ? "RANK_LOST" : "RANKS_DIFFER", failure.text);
    }
    // Waiting for a rank that works is progress.
    if (peerProgress !== this.#seenProgress) beat();
    this.#seenProgress = peerProgress;
  }

  end(): void {
    this.#state.endWait();
  }

  /** Tells the other ranks why this one ends, so that they need not wait until its process is gone. */
  fail(error: unknown): void {
    if (!this.#isOpen || this.#state.failure) return;
    this.#isOpen = false;
    const message = error instanceof Error ? error.message : String(error);
    this.#send({ type: "failed", message: message.slice(0, maxMessage) });
    try {
      this.#poll(lastWordsMs, (received) => received.type === "sent");
    } catch {
      // Another rank has failed too: the error of this one is the one to report here.
    }
  }

  /** Says goodbye, and waits until all ranks have done so: rank 0 must stay until then. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    try {
      this.#state.beginWait("the goodbye");
      this.#send({ type: "bye" });
      this.#receive(this.rank === 0 ? "end" : "sent", Number.POSITIVE_INFINITY);
    } finally {
      this.#state.endWait();
      this.#port.close();
      void this.#worker.terminate();
    }
  }

  #send(message: ToThread): void {
    this.#port.postMessage(message);
  }

  /** Waits for a message of this type. */
  #receive<T extends FromThread["type"]>(type: T, timeoutMs: number): Extract<FromThread, { type: T }> {
    const found = this.#poll(timeoutMs, (message) => {
      if (message.type === "error" || message.type === "rejected")
        throw rankError("RANK_LOST", message.type === "error" ? message.message : message.why);
      if (message.type === "differ")
        throw rankError(
          "RANKS_DIFFER",
          `the ranks are at different places of their programs: ${message.names.map((name, rank) => `rank ${rank} exchanges ${name}`).join(", ")}`,
        );
      return message.type === type;
    });
    if (found) return found as Extract<FromThread, { type: T }>;
    throw rankError(
      "RANK_LOST",
      `the thread for the other ranks has not answered (${type}) within ${formatDuration(timeoutMs)}`,
    );
  }

  #poll(timeoutMs: number, isAwaited: (message: FromThread) => boolean): FromThread | undefined {
    const endMs = performance.now() + timeoutMs;
    for (;;) {
      const { notifications } = this.#state;
      const received = receiveMessageOnPort(this.#port) as { readonly message: FromThread } | undefined;
      if (received) {
        if (isAwaited(received.message)) return received.message;
        continue;
      }
      const remainingMs = endMs - performance.now();
      if (remainingMs <= 0) return undefined;
      this.poll();
      this.#state.sleep(notifications, Math.min(remainingMs, 100));
    }
  }
}

function rankError(code: "RANK_LOST" | "RANKS_DIFFER", text: string): HoldfastError {
  return new HoldfastError(code, `${text.charAt(0).toUpperCase()}${text.slice(1)}.`);
}

/** Where the hub is, and the secret that it wants to hear. */
interface MeetingPoint {
  readonly hosts: readonly string[];
  readonly port: number;
  readonly token: string;
}

/** The addresses of this machine, those that other machines can reach first. */
function ownAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  // A link-local address needs the name of an interface of the other machine.
  const usable = all.filter(({ address }) => !address.startsWith("fe80:"));
  const order = usable.sort((a, b) => Number(a.internal) - Number(b.internal));
  return [...order.map(({ address }) => address), "127.0.0.1"];
}
