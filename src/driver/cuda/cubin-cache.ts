/**
 * Compiled kernels on disk, in the user's cache folder. A file's name is the hash of all inputs of its content; its
 * first bytes are a checksum of the rest. A file that is damaged, or that another user owns, counts as missing: the
 * kernel is compiled and written again. A cache that cannot be written is slower, but no error.
 */

import { createHash, randomUUID } from "node:crypto";
import {
  closeSync,
  constants as files,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { isPrivate } from "../../files/index.js";

const magic = "HOLDFAST CUBIN 1\n";
const checksumBytes = 32;

export interface CubinCache {
  /** The cache key of content that depends only on these texts. */
  makeKey(texts: readonly string[]): string;
  read(key: string): Uint8Array | undefined;
  write(key: string, content: Uint8Array): void;
}

/** The default folder for compiled kernels. */
export function defaultCacheFolder(environment: Readonly<Record<string, string | undefined>>): string {
  const { XDG_CACHE_HOME: cache, HOME: home } = environment;
  return join(cache || join(home || homedir(), ".cache"), "holdfast");
}

/** Opens a cache in a folder, which is created when first needed. "off" stores nothing. */
export function openCubinCache(folder: string): CubinCache {
  return folder === "off"
    ? { makeKey, read: () => undefined, write: () => undefined }
    : new FolderCache(folder);
}

function makeKey(texts: readonly string[]): string {
  const hash = createHash("sha256");
  // Lengths separate lists whose concatenations are equal.
  for (const text of texts) hash.update(`${Buffer.byteLength(text)}:${text}`);
  return hash.digest("hex");
}

class FolderCache implements CubinCache {
  readonly #folder: string;
  readonly makeKey = makeKey;

  constructor(folder: string) {
    this.#folder = folder;
  }

  read(key: string): Uint8Array | undefined {
    let file: number | undefined;
    try {
      if (!isPrivate(statSync(this.#folder))) return undefined;
      // A symlink could point at another user's file.
      file = openSync(this.#filePath(key), files.O_RDONLY | files.O_NOFOLLOW);
      if (!isPrivate(fstatSync(file))) return undefined;
      return unwrap(readFileSync(file));
    } catch {
      return undefined;
    } finally {
      if (file !== undefined) closeSync(file);
    }
  }

  write(key: string, content: Uint8Array): void {
    const unfinished = join(this.#folder, `${randomUUID()}.part`);
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      if (!isPrivate(statSync(this.#folder))) return;
      writeFileSync(unfinished, wrap(content), { mode: 0o600, flag: "wx" });
      // A rename is atomic: readers see the whole file or none, even if several processes write it.
      renameSync(unfinished, this.#filePath(key));
    } catch {
      removeIfPresent(unfinished);
    }
  }

  #filePath(key: string): string {
    return join(this.#folder, `${key}.cubin`);
  }
}

function removeIfPresent(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // If nothing can be removed, nothing was written.
  }
}

function wrap(content: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(magic), createHash("sha256").update(content).digest(), content]);
}

function unwrap(file: Buffer): Uint8Array | undefined {
  const start = magic.length + checksumBytes;
  if (file.length < start || file.toString("latin1", 0, magic.length) !== magic) return undefined;
  const content = file.subarray(start);
  const checksum = createHash("sha256").update(content).digest();
  return checksum.equals(file.subarray(magic.length, start)) ? content : undefined;
}
