/**
 * Simulates a power cut at any moment. Every change to files is recorded with its data as a program makes it;
 * then a folder is built as a disk could have it after a cut that follows any of these changes.
 *
 * The model of a disk: `fsync` of a file makes its bytes durable, `fsync` of a folder its names. Other
 * changes may be lost: a file has the size after some of its latest changes, and each sector of theirs is new
 * or old, or zeros if there was none. A folder has a prefix of its latest changes, in order, like a journal.
 * A file's bytes and its name are independent.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { aroundSystemCalls, type SystemCall } from "./system-calls.js";

/** A file's bytes, under whatever names it has; folders are numbered too. */
type Inode = number;

export type Change =
  | { readonly kind: "write"; readonly inode: Inode; readonly at: number; readonly bytes: Uint8Array }
  | { readonly kind: "truncate"; readonly inode: Inode; readonly size: number }
  | { readonly kind: "sync"; readonly inode: Inode }
  | {
      readonly kind: "name";
      readonly folder: Inode;
      readonly name: string;
      readonly inode: Inode | undefined;
    }
  | { readonly kind: "syncFolder"; readonly folder: Inode };

export interface ChangeLog {
  readonly root: Inode;
  readonly folders: ReadonlySet<Inode>;
  readonly changes: readonly Change[];
}

const sectorBytes = 512;

/** Runs a function and records its changes below a folder, which is created here. */
export async function recordChanges(root: string, body: () => Promise<void>): Promise<ChangeLog> {
  mkdirSync(root);
  const log = new Recording(resolve(root));
  const restore = await aroundSystemCalls((call, proceed) => {
    const result = proceed();
    log.note(call, result);
    return result;
  });
  try {
    await body();
  } finally {
    restore();
  }
  return log;
}

class Recording implements ChangeLog {
  readonly root: Inode = 0;
  readonly folders = new Set<Inode>([0]);
  readonly changes: Change[] = [];
  readonly #rootPath: string;
  /** By path below the root. */
  readonly #inodes = new Map<string, Inode>([["", 0]]);
  readonly #sizes = new Map<Inode, number>();
  readonly #open = new Map<number, { readonly inode: Inode; at: number; readonly isAppending: boolean }>();
  #last = 0;

  constructor(rootPath: string) {
    this.#rootPath = rootPath;
  }

  note({ name, args }: SystemCall, result: unknown): void {
    const [first, second, third, , fifth] = args;
    if (name === "openSync") this.#noteOpen(first as string, second, result as number);
    else if (name === "closeSync") this.#open.delete(first as number);
    else if (name === "writeSync") {
      const file = this.#open.get(first as number);
      const bytes = Buffer.from(second as string | Uint8Array);
      const offset = typeof second === "string" ? 0 : Number(third ?? 0);
      const position = typeof second === "string" ? undefined : fifth;
      if (!file) return;
      const at = file.isAppending
        ? (this.#sizes.get(file.inode) ?? 0)
        : typeof position === "number"
          ? position
          : file.at;
      this.#write(file.inode, at, bytes.subarray(offset, offset + Number(result)));
      if (typeof position !== "number") file.at = at + Number(result);
    } else if (name === "ftruncateSync") {
      const file = this.#open.get(first as number);
      if (!file) return;
      this.changes.push({ kind: "truncate", inode: file.inode, size: Number(second ?? 0) });
      this.#sizes.set(file.inode, Number(second ?? 0));
    } else if (name === "fsyncSync") {
      const file = this.#open.get(first as number);
      if (!file) return;
      if (this.folders.has(file.inode)) this.changes.push({ kind: "syncFolder", folder: file.inode });
      else this.changes.push({ kind: "sync", inode: file.inode });
    } else if (name === "writeFileSync" || name === "appendFileSync") {
      const path = this.#below(first);
      if (path === undefined) return;
      const inode = this.#inodes.get(path) ?? this.#create(path);
      const at = name === "appendFileSync" ? (this.#sizes.get(inode) ?? 0) : 0;
      this.#write(inode, at, Buffer.from(second as string | Uint8Array));
    } else if (name === "renameSync") this.#rename(first, second);
    else if (name === "linkSync") {
      const [from, to] = [this.#below(first), this.#below(second)];
      const inode = from === undefined ? undefined : this.#inodes.get(from);
      if (to !== undefined && inode !== undefined) this.#name(to, inode);
    } else if (name === "rmSync" || name === "unlinkSync") {
      const path = this.#below(first);
      if (path !== undefined && this.#inodes.has(path)) this.#name(path, undefined);
    } else if (name === "mkdirSync") {
      const path = this.#below(first);
      if (path !== undefined) this.folders.add(this.#create(path));
    } else if (
      /^(write|append|truncate|rename|link|symlink|rm|unlink|mkdir|cp|copyFile)/.test(name) &&
      this.#below(first) !== undefined
    )
      throw new Error(`${name} changes files, and the power cut model has no rule for it: add one.`);
  }

  #noteOpen(path: string, flags: unknown, file: number): void {
    const inner = this.#below(path);
    if (inner === undefined) return;
    const inode = this.#inodes.get(inner) ?? this.#create(inner);
    const isAppending = typeof flags === "string" ? flags.startsWith("a") : (Number(flags) & 0o2000) !== 0;
    this.#open.set(file, { inode, at: 0, isAppending });
    if (typeof flags === "string" && flags.startsWith("w")) {
      this.changes.push({ kind: "truncate", inode, size: 0 });
      this.#sizes.set(inode, 0);
    }
  }

  #write(inode: Inode, at: number, bytes: Uint8Array): void {
    this.changes.push({ kind: "write", inode, at, bytes: bytes.slice() });
    this.#sizes.set(inode, Math.max(this.#sizes.get(inode) ?? 0, at + bytes.length));
  }

  #rename(from: unknown, to: unknown): void {
    const [source, other] = [this.#below(from), this.#below(to)];
    const inode = source === undefined ? undefined : this.#inodes.get(source);
    if (source === undefined || other === undefined || inode === undefined) return;
    // In one folder, so that a journal has both or none.
    this.#inodes.delete(source);
    this.#inodes.set(other, inode);
    const folder = this.#folderOf(other);
    this.changes.push({ kind: "name", folder, name: `${basename(source)}\0${basename(other)}`, inode });
  }

  #create(path: string): Inode {
    const inode = ++this.#last;
    this.#name(path, inode);
    return inode;
  }

  #name(path: string, inode: Inode | undefined): void {
    if (inode === undefined) this.#inodes.delete(path);
    else this.#inodes.set(path, inode);
    this.changes.push({ kind: "name", folder: this.#folderOf(path), name: basename(path), inode });
  }

  #folderOf(path: string): Inode {
    const above = dirname(path);
    return this.#inodes.get(above === "." ? "" : above) ?? 0;
  }

  /** A path below the root; undefined for any other. */
  #below(path: unknown): string | undefined {
    if (typeof path !== "string") return undefined;
    const inner = relative(this.#rootPath, resolve(path));
    return inner.startsWith("..") ? undefined : inner;
  }
}

/** Numbers from 0 to below 1. */
export type Draw = () => number;

/** Random numbers from a seed, always the same ones (mulberry32). */
export function seededDraw(seed: number): Draw {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Builds in a folder a possible state of a disk after a power cut that follows this many changes. */
export function cutPower(
  { root, folders, changes }: ChangeLog,
  count: number,
  folder: string,
  draw: Draw,
): void {
  const pending = new Map<Inode, Change[]>();
  const lasting = new Map<Inode, Buffer>();
  const names = new Map<Inode, Map<string, Inode>>();
  for (const change of changes.slice(0, count)) {
    if (change.kind === "sync" || change.kind === "syncFolder") {
      const of = change.kind === "sync" ? change.inode : change.folder;
      apply(pending.get(of) ?? [], of, () => true);
      pending.delete(of);
    } else {
      const of = change.kind === "name" ? change.folder : change.inode;
      pending.set(of, [...(pending.get(of) ?? []), change]);
    }
  }
  for (const [of, waiting] of pending) {
    const kept = waiting.slice(0, Math.floor(draw() * (waiting.length + 1)));
    const share = draw();
    apply(kept, of, () => draw() < 0.5 + share);
  }
  build(root, folder);

  function apply(some: readonly Change[], of: Inode, isThere: () => boolean): void {
    for (const change of some) {
      if (change.kind === "name") rename(names.get(of) ?? new Map(), change);
      else if (change.kind === "truncate") lasting.set(of, resized(lasting.get(of), change.size));
      else if (change.kind === "write") lasting.set(of, written(lasting.get(of), change, isThere));
    }
  }

  function rename(
    inFolder: Map<string, Inode>,
    { folder: of, name, inode }: Change & { kind: "name" },
  ): void {
    names.set(of, inFolder);
    const [from = "", to = from] = name.split("\0");
    if (to !== from) inFolder.delete(from);
    if (inode === undefined) inFolder.delete(to);
    else inFolder.set(to, inode);
  }

  function build(of: Inode, path: string): void {
    mkdirSync(path, { recursive: true });
    for (const [name, inode] of names.get(of) ?? []) {
      if (folders.has(inode)) build(inode, join(path, name));
      else writeFileSync(join(path, name), lasting.get(inode) ?? Buffer.alloc(0));
    }
  }
}

function resized(bytes: Buffer = Buffer.alloc(0), size: number): Buffer {
  const result = Buffer.alloc(size);
  bytes.copy(result);
  return result;
}

/** The file after a write of which only some sectors reached the disk. */
function written(
  bytes: Buffer = Buffer.alloc(0),
  { at, bytes: fresh }: Change & { kind: "write" },
  isThere: () => boolean,
): Buffer {
  const result = resized(bytes, Math.max(bytes.length, at + fresh.length));
  for (let from = 0; from < fresh.length; ) {
    const end = Math.min(fresh.length, from + sectorBytes - ((at + from) % sectorBytes));
    if (isThere()) result.set(fresh.subarray(from, end), at + from);
    from = end;
  }
  return result;
}
