/**
 * Fails the nth system call of a kind: the disk is full, the disk is broken, too many files are open, a write
 * is partial. Modelled after SQLite's tests, which fail every call in turn.
 */

import type { ChildProcess } from "node:child_process";
import type { Server } from "node:net";
import { aroundSystemCalls, type CallKind, type Proceed, type SystemCall } from "./system-calls.js";

/** A read of /proc or /sys is a separate kind: a run reads the machine's memory again and again. */
export type FailingKind = CallKind | "machine";

export interface Fault {
  readonly kind: FailingKind;
  /** The number of the failing call of the kind, from 1. */
  readonly nth: number;
  /** An error's code; "short" does only part of the work; "torn" does a part, and then fails with ENOSPC. */
  readonly how: string;
  /** Every later call of the kind fails too. */
  readonly isLasting?: boolean;
}

type FaultKind = Pick<Fault, "how" | "isLasting">;

/** The possible faults of each kind of call. */
export const faultKinds: Readonly<Record<FailingKind, readonly FaultKind[]>> = {
  open: [{ how: "EMFILE" }, { how: "EACCES" }, { how: "EMFILE", isLasting: true }],
  read: [{ how: "EIO" }, { how: "short" }],
  write: [{ how: "ENOSPC" }, { how: "short" }, { how: "torn" }, { how: "torn", isLasting: true }],
  sync: [{ how: "EIO" }, { how: "ENOSPC", isLasting: true }],
  truncate: [{ how: "EIO" }],
  rename: [{ how: "EIO" }, { how: "EACCES" }],
  link: [{ how: "ENOSPC" }],
  remove: [{ how: "EPERM" }],
  make: [{ how: "ENOSPC" }, { how: "EACCES" }],
  list: [{ how: "EMFILE" }],
  stat: [{ how: "EIO" }],
  close: [{ how: "EIO" }],
  machine: [{ how: "EMFILE" }],
  spawn: [{ how: "EAGAIN" }],
  thread: [{ how: "EAGAIN" }],
  listen: [{ how: "EADDRINUSE" }, { how: "EACCES" }],
};

export function describeFault({ kind, nth, how, isLasting }: Fault): string {
  return `${kind} ${nth}${isLasting ? " and all later ones" : ""}: ${how}`;
}

/** The number of calls of each kind that a function makes. */
export async function countCalls(body: () => Promise<unknown>): Promise<ReadonlyMap<FailingKind, number>> {
  const counts = new Map<FailingKind, number>();
  const restore = await aroundSystemCalls((call, proceed) => {
    const kind = kindOf(call);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
    return proceed();
  });
  try {
    await body();
  } finally {
    restore();
  }
  return counts;
}

/** Runs a function with one fault. Returns whether the fault occurred, and at which call. */
export async function withFault<Result>(
  fault: Fault,
  body: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly failed: SystemCall | undefined }> {
  let count = 0;
  let failed: SystemCall | undefined;
  const restore = await aroundSystemCalls((call, proceed) => {
    if (kindOf(call) !== fault.kind) return proceed();
    count++;
    if (count < fault.nth || (count > fault.nth && !fault.isLasting)) return proceed();
    failed ??= call;
    return fail(call, fault.how, proceed);
  });
  try {
    return { result: await body(), failed };
  } finally {
    restore();
  }
}

function kindOf({ kind, args: [subject] }: SystemCall): FailingKind {
  const isMachine = kind === "read" && typeof subject === "string" && /^\/(proc|sys)\//.test(subject);
  return isMachine ? "machine" : kind;
}

function fail(call: SystemCall, how: string, proceed: Proceed): unknown {
  const { kind, name } = call;
  if (how === "short") return halve(call, proceed, true) ?? proceed();
  if (how === "torn") {
    halve(call, proceed);
    throw systemError("ENOSPC", call);
  }
  const error = systemError(how, call);
  // A descriptor is closed whatever close returns.
  if (kind === "close") proceed(call.args.map((arg) => (typeof arg === "function" ? () => undefined : arg)));
  if (name === "existsSync") return false;
  if (kind === "spawn") return failedProcess(error, proceed);
  if (kind === "thread")
    throw Object.assign(new Error(`Worker initialization failure: ${how}`), {
      code: "ERR_WORKER_INIT_FAILED",
    });
  if (kind === "listen") {
    const server = call.subject as Server;
    process.nextTick(() => server.emit("error", error));
    return server;
  }
  throw error;
}

/** Reads or writes half of the requested bytes, at least one; undefined if a call has no half. */
function halve({ name, args }: SystemCall, proceed: Proceed, isWhole = false): unknown {
  // Node itself continues after a short write of these.
  if (!isWhole && (name === "appendFileSync" || name === "writeFileSync")) {
    const [path, content, options] = args;
    const bytes = Buffer.from(content as string);
    return void proceed([path, bytes.subarray(0, bytes.length >> 1), options]);
  }
  if (name !== "writeSync" && name !== "readSync") return undefined;
  const [file, content, offset = 0, length, ...rest] = args as [
    number,
    Uint8Array | string,
    number?,
    number?,
  ];
  if (typeof content === "string") {
    const bytes = Buffer.from(content);
    return proceed([file, bytes, 0, bytes.length >> 1]);
  }
  const whole = length ?? content.byteLength - offset;
  return proceed([file, content, offset, Math.max(Math.min(whole, 1), whole >> 1), ...rest]);
}

/** In the format of Node's system errors. */
function systemError(code: string, { name, args: [subject] }: SystemCall): Error {
  const syscall = name.replace(/Sync$/, "");
  const where = typeof subject === "string" ? ` '${subject}'` : "";
  return Object.assign(new Error(`${code}: injected by a test, ${syscall}${where}`), {
    code,
    syscall,
    errno: -1,
  });
}

/** A process that can't be started reports it by an event, a moment later. */
function failedProcess(error: Error, proceed: Proceed): ChildProcess {
  const child = proceed(["/a/program/that/is/not/there", []]) as ChildProcess;
  const emit: (event: string | symbol, ...args: unknown[]) => boolean = child.emit.bind(child);
  child.emit = (event: string | symbol, ...args: unknown[]) =>
    emit(event, ...(event === "error" ? [error] : args));
  return child;
}
