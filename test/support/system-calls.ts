/**
 * A seam between the program and the system: every call of node:fs, node:fs/promises, node:child_process,
 * node:worker_threads and of listen() goes through a function, which may observe it, fail it, or let it do
 * part of its work.
 *
 * Node's own modules are changed, and `syncBuiltinESMExports` passes the change to every import. So the
 * library needs no seam of its own, can't bypass this one by mistake, and the calls of its dependencies are
 * seen too. The price: code in other threads, and modules that Node itself loads, are not seen.
 */

import childProcess from "node:child_process";
import fs from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import { fileURLToPath } from "node:url";
import workerThreads from "node:worker_threads";

export type CallKind =
  | "open"
  | "read"
  | "write"
  | "sync"
  | "truncate"
  | "rename"
  | "link"
  | "remove"
  | "make"
  | "list"
  | "stat"
  | "close"
  | "spawn"
  | "thread"
  | "listen";

export interface SystemCall {
  readonly kind: CallKind;
  /** Node's name for it, such as `openSync`. */
  readonly name: string;
  readonly args: readonly unknown[];
  /** The object of the method: a server that listens, a file handle. */
  readonly subject: unknown;
}

/** Makes the call, with other arguments if passed. */
export type Proceed = (args?: readonly unknown[]) => unknown;

/** Wraps every call. An exception becomes the call's error, in the call's own way of reporting. */
export type Around = (call: SystemCall, proceed: Proceed) => unknown;

type Function = (this: unknown, ...args: unknown[]) => unknown;
type Functions = Record<string, Function>;

/** How a function reports its error. */
type Style = "sync" | "callback" | "promise";

const fsKinds: Readonly<Record<string, CallKind>> = {
  ...{ open: "open", opendir: "open" },
  ...{ read: "read", readv: "read", readFile: "read", readlink: "read" },
  ...{ write: "write", writev: "write", writeFile: "write", appendFile: "write" },
  ...{ fsync: "sync", fdatasync: "sync", sync: "sync", datasync: "sync" },
  ...{ truncate: "truncate", ftruncate: "truncate" },
  ...{ rename: "rename", link: "link", symlink: "link" },
  ...{ rm: "remove", unlink: "remove", rmdir: "remove" },
  ...{ mkdir: "make", mkdtemp: "make" },
  readdir: "list",
  ...{ stat: "stat", lstat: "stat", fstat: "stat", statfs: "stat", access: "stat", exists: "stat" },
  realpath: "stat",
  close: "close",
};

/** Wraps every call with a function until the returned function is called. Only one at a time. */
export async function aroundSystemCalls(around: Around): Promise<() => void> {
  const undo: (() => void)[] = [];
  // Calls that Node makes inside a call, as writeFileSync calls openSync in some versions, are part of the
  // outer call.
  let isInside = false;

  function wrap(owner: object, name: string, kind: CallKind, style: Style): void {
    const functions = owner as Functions;
    const original = functions[name];
    if (typeof original !== "function") return;
    const wrapped: Function = function (this: unknown, ...args) {
      if (isInside) return original.apply(this, args);
      const proceed: Proceed = (others = args) => {
        isInside = true;
        try {
          return original.apply(this, [...others]);
        } finally {
          isInside = false;
        }
      };
      const call: SystemCall = { kind, name, args, subject: this };
      if (style === "sync") return around(call, proceed);
      try {
        return around(call, proceed);
      } catch (error) {
        if (style === "promise") return Promise.reject(error);
        const tell = args.at(-1) as (error: unknown) => void;
        process.nextTick(() => tell(error));
        return undefined;
      }
    };
    functions[name] = Object.assign(wrapped, original);
    undo.push(() => {
      functions[name] = original;
    });
  }

  const handle = await promises.open(fileURLToPath(import.meta.url), "r");
  const handles = Object.getPrototypeOf(handle) as object;
  await handle.close();
  for (const [name, kind] of Object.entries(fsKinds)) {
    wrap(fs, `${name}Sync`, kind, "sync");
    if (name !== "exists") wrap(fs, name, kind, "callback");
    wrap(promises, name, kind, "promise");
    if (Object.hasOwn(handles, name)) wrap(handles, name, kind, "promise");
  }
  wrap(childProcess, "spawn", "spawn", "sync");
  wrap(net.Server.prototype, "listen", "listen", "sync");
  const { Worker } = workerThreads;
  workerThreads.Worker = new Proxy(Worker, {
    construct: (target, args: unknown[], newTarget: new () => object) =>
      around(
        { kind: "thread", name: "Worker", args, subject: undefined },
        (others = args) => Reflect.construct(target, [...others], newTarget) as object,
      ) as object,
  });
  undo.push(() => {
    workerThreads.Worker = Worker;
  });
  syncBuiltinESMExports();
  return () => {
    for (const restore of undo.reverse()) restore();
    syncBuiltinESMExports();
  };
}
