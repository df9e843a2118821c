/**
 * Compiled kernels on disk, in the user's own cache folder. A file's name is the hash of everything that its content
 * follows from, and its first bytes are the checksum of the rest. What is damaged, or is not this user's own, is as good
 * as missing: it is compiled again and written anew. That a cache can't be written is no error, only slower.
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
import { isOwn } from "../../files/index.js";

const magic = "HOLDFAST CUBIN 1\n";
const checksumBytes = 32;

export interface CubinCache {
  /** The name under which something that follows from these texts is kept. */
  keyOf(texts: readonly string[]): string;
  read(key: string): Uint8Array | undefined;
  write(key: string, content: Uint8Array): void;
}

/** Where compiled kernels are kept unless a setting says otherwise. */
export function defaultCacheFolder(environment: Readonly<Record<string, string | undefined>>): string {
  const { XDG_CACHE_HOME: cache, HOME: home } = environment;
  return join(cache || join(home || homedir(), ".cache"), "holdfast");
}

/** A cache in a folder, which is made when first needed; "off" keeps nothing. */
export function openCubinCache(folder: string): CubinCache {
  return folder === "off"
    ? { keyOf, read: () => undefined, write: () => undefined }
    : new FolderCache(folder);
}

function keyOf(texts: readonly string[]): string {
  const hash = createHash("sha256");
  // Lengths keep two lists of texts apart that read the same in a row.
  for (const text of texts) hash.update(`${Buffer.byteLength(text)}:${text}`);
  return hash.digest("hex");
}

class FolderCache implements CubinCache {
  readonly #folder: string;
  readonly keyOf = keyOf;

  constructor(folder: string) {
    this.#folder = folder;
  }

  read(key: string): Uint8Array | undefined {
    let file: number | undefined;
    try {
      if (!isOwn(statSync(this.#folder))) return undefined;
      // A link could point at anybody's file.
      file = openSync(this.#pathOf(key), files.O_RDONLY | files.O_NOFOLLOW);
      if (!isOwn(fstatSync(file))) return undefined;
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
      if (!isOwn(statSync(this.#folder))) return;
      writeFileSync(unfinished, wrap(content), { mode: 0o600, flag: "wx" });
      // Whoever reads sees the whole file or none, however many processes write it.
      renameSync(unfinished, this.#pathOf(key));
    } catch {
      removeIfThere(unfinished);
    }
  }

  #pathOf(key: string): string {
    return join(this.#folder, `${key}.cubin`);
  }
}

function removeIfThere(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // Where nothing can be removed, nothing could be written.
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
