/**
 * A rank's thread for the other ranks. It tells the hub what the main thread does, and the main thread what becomes of the others. It needs
 * nothing from the main thread, which may be inside a library for as long as another rank makes it wait. A worker script, started by
 * `peers.ts`.
 */

import { writeSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { hostname } from "node:os";
import { type MessagePort, workerData } from "node:worker_threads";
import { type DriverCall, loadKoffi } from "../../driver/index.js";
import { exitCodes } from "../../errors/index.js";
import { SharedStatus } from "../../runtime/index.js";
import { beatCounter, formatDuration, loadNative, turnCounter } from "../../units/index.js";
import { CommunicatorWatch, type OpenCommunicator } from "../nccl/abort.js";
import { failureText } from "./failure-text.js";
import { Hub, type HubOptions, tickMs } from "./hub.js";
import { type Failure, type FromHub, LineReader, protocolVersion, type ToHub, toLine } from "./messages.js";
import { SharedState } from "./shared-state.js";

export interface PeerThreadData {
  readonly rank: number;
  readonly size: number;
  readonly pid: number;
  /** Rank 0 only. */
  readonly token: string;
  readonly timeoutMs: number;
  readonly connectWithinMs: number;
  readonly state: SharedArrayBuffer;
  /** The main thread's heartbeat. */
  readonly heartbeat: SharedArrayBuffer;
  readonly port: MessagePort;
  /** Rank 0 only: the port at which the hub listens; 0 if the system chooses it. */
  readonly listen: number | undefined;
}

/** From the main thread. */
export type ToThread =
  /** Addresses of rank 0. Some may not be reachable from here. */
  | {
      readonly type: "connect";
      readonly hosts: readonly string[];
      readonly port: number;
      readonly token: string;
    }
  /** The status of a runtime that the main thread has opened. */
  | { readonly type: "runtime"; readonly status: SharedArrayBuffer }
  /** The main thread has a communicator of GPUs. */
  | ({ readonly type: "communicator" } & OpenCommunicator)
  | { readonly type: "offer"; readonly name: string; readonly value: unknown }
  | { readonly type: "failed"; readonly message: string }
  | { readonly type: "bye" };

/** To the main thread. */
export type FromThread =
  | { readonly type: "listening"; readonly port: number }
  | { readonly type: "error"; readonly message: string }
  /** What was to be sent has been sent. */
  | { readonly type: "sent" }
  | FromHub;

const data = workerData as PeerThreadData;
const state = new SharedState(data.state);
const beats = beatCounter(data.heartbeat);
const turns = turnCounter(data.heartbeat);
/** Of the runtimes that the main thread has opened. */
const statuses: SharedStatus[] = [];

/** How long a connection may take, before the next address is tried. */
const connectMs = 3000;

/** Driver calls that return when the GPU has worked, or has place for more work. */
const waitingCalls: ReadonlySet<DriverCall> = new Set([
  ...(["launch", "launchGraph", "synchronize", "synchronizeEvent", "copyToDevice", "copyToHost"] as const),
  ...(["destroyStream", "release", "freeHost", "unloadKernel", "destroyGraph"] as const),
]);
/** How long NCCL's failure is kept back: if another rank has caused it, the hub tells. */
const failureDelayMs = Math.min(1500, data.timeoutMs / 2);

let communicator: CommunicatorWatch | undefined;
let ncclFailedMs: number | undefined;
let socket: Socket | undefined;
let isLeaving = false;
let progress = 0;
let lastActivity = "";
let heardMs = performance.now();
/** When the main thread last did something. */
let movedMs = performance.now();
let failureSinceMs: number | undefined;
/** Loaded early: later the file system may be stuck. */
let exit: ((code: number) => void) | undefined;
void loadNative(async () => {
  exit = loadKoffi().load(null).func("void _exit(int code)");
});

function post(message: FromThread): void {
  data.port.postMessage(message);
  state.notify();
}

function send(message: ToHub): void {
  if (socket?.writable) socket.write(toLine(message));
}

/** What the engine does: its open phases. */
function doing(): string {
  const phases = statuses.flatMap((status) => status.openPhases());
  if (phases.length === 0) return "between two steps";
  return phases.map(({ phase, number }) => (number > 0 ? `${phase} ${number}` : phase)).join(", ");
}

function tellStatus(): void {
  const moved = statuses.map((status) => `${status.movedMs} ${status.driverCallsMade}`).join();
  const activity = `${beats()} ${turns()} ${moved} ${state.sequence} ${state.waitsIn}`;
  if (activity !== lastActivity) {
    progress++;
    movedMs = performance.now();
  }
  lastActivity = activity;
  const { sequence, waitsIn } = state;
  const waitsForGpu = waitsIn === undefined && isInDriver();
  send({
    ...{ type: "status", progress, doing: doing(), sequence },
    waitsIn: waitsForGpu ? "the work of its GPU" : waitsIn,
    waitsForGpu,
  });
  if (waitsForGpu && performance.now() - movedMs > tickMs) requireNccl();
}

/** True if the main thread may wait in the driver for the collectives of other GPUs. */
function isInDriver(): boolean {
  if (!communicator) return false;
  return statuses.some((status) => waitingCalls.has(status.openCall()?.call ?? "close"));
}

/** The main thread is in the driver, so it uses NCCL no more than the GPU does. */
function requireNccl(): void {
  const failure = state.failure ? undefined : communicator?.failure();
  if (failure === undefined) return;
  ncclFailedMs ??= performance.now();
  if (performance.now() - ncclFailedMs < failureDelayMs) return;
  const message = `NCCL failed: ${failure}. Set NCCL_DEBUG=WARN to see its own message`;
  send({ type: "failed", message });
  report("lost", `on this rank ${message}`);
}

function abortCommunicator(): void {
  if (communicator && state.takeCommunicator()) communicator.abort(() => state.noteAborted());
}

/** For the main thread, which may be waiting in vain, and for the user: the launcher may end this process at any moment. */
function report(what: Failure, text: string): void {
  if (isLeaving || state.failure) return;
  state.reportFailure(what, text);
  failureSinceMs = performance.now();
  abortCommunicator();
  try {
    writeSync(2, `holdfast: rank ${data.rank} of ${data.size}: ${text}.\n`);
  } catch {
    // The main thread has it too.
  }
}

/** Ends this process if it does nothing, and so can't learn that another rank is lost. */
function leaveIfStuck(): void {
  if (failureSinceMs === undefined || state.isFailureSeen) return;
  if (performance.now() - Math.max(failureSinceMs, movedMs) < data.timeoutMs) return;
  try {
    writeSync(
      2,
      `holdfast: rank ${data.rank} of ${data.size}: this process has done nothing for ${formatDuration(data.timeoutMs)} (${doing()}), and ends with exit code ${exitCodes.rankLost.code}.\n`,
    );
  } finally {
    exit?.(exitCodes.rankLost.code);
  }
}

function receive(message: FromHub): void {
  heardMs = performance.now();
  if (message.type === "tick") state.peerProgress = message.progress;
  else if (message.type === "failure") {
    // The echo of this rank's own last words: every rank has been told.
    if (isLeaving) post({ type: "sent" });
    report(message.what, failureText(message, data.rank));
  } else {
    if (message.type === "end") isLeaving = true;
    post(message);
  }
}

/** Connects, and tries again while rank 0 is starting. */
function join(hosts: readonly string[], port: number, token: string): void {
  const endMs = performance.now() + data.connectWithinMs;
  const attempt = (index = 0): void => {
    const host = hosts[index % hosts.length] ?? "127.0.0.1";
    const trial = connect({ host, port, noDelay: true });
    // A packet to an address of another network may get no answer.
    trial.setTimeout(connectMs, () => trial.destroy(new Error("no answer")));
    const reader = new LineReader();
    let isConnected = false;
    trial.on("connect", () => {
      isConnected = true;
      socket = trial;
      trial.setTimeout(0);
      heardMs = performance.now();
      const { rank, size, pid } = data;
      send({ type: "hello", protocol: protocolVersion, token, rank, size, pid, host: hostname() });
    });
    trial.on("data", (chunk: Buffer) => {
      for (const message of reader.push(chunk)) receive(message as FromHub);
    });
    trial.on("error", (error) => {
      if (isConnected) return;
      if (performance.now() < endMs) setTimeout(attempt, tickMs, index + 1);
      else
        post({
          type: "error",
          message: `rank 0 can't be reached at ${hosts.join(" or ")}, port ${port}, within ${formatDuration(data.connectWithinMs)}: ${error.message}`,
        });
    });
    trial.on("close", () => {
      if (isConnected)
        report("lost", "rank 0 is lost: the connection to it has closed, so its process has ended");
    });
  };
  attempt();
}

data.port.on("message", (message: ToThread) => {
  if (message.type === "connect") join(message.hosts, message.port, message.token);
  else if (message.type === "runtime") statuses.push(new SharedStatus(message.status));
  else if (message.type === "communicator") {
    communicator = new CommunicatorWatch(message);
    if (state.failure) abortCommunicator();
  } else if (message.type === "offer") send(message);
  else {
    tellStatus();
    isLeaving = message.type === "failed" || data.rank !== 0;
    const isLastWord = message.type === "failed";
    if (socket?.writable) socket.write(toLine(message), () => isLastWord || post({ type: "sent" }));
    else post({ type: "sent" });
  }
});

setInterval(() => {
  tellStatus();
  leaveIfStuck();
  if (socket && performance.now() - heardMs > data.timeoutMs)
    report(
      "lost",
      `rank 0 is lost: it has sent nothing for ${formatDuration(data.timeoutMs)}. Its process or machine is stopped, or the network is down`,
    );
}, tickMs);

// Without this thread the rank would look lost, and could wait for ever.
process.on("uncaughtException", (error) =>
  report("lost", `its thread for the other ranks has failed: ${error.message}`),
);

if (data.listen !== undefined) {
  const { listen: port, size, token, timeoutMs, connectWithinMs } = data;
  const options: HubOptions = { port, size, token, timeoutMs, connectWithinMs };
  Hub.open(options).then(
    (hub) => post({ type: "listening", port: hub.port }),
    (error) =>
      post({
        type: "error",
        message: `rank 0 can't listen at port ${port}: ${(error as Error).message}. Set MASTER_PORT to a free port, on every rank`,
      }),
  );
}
