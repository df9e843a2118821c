/**
 * What NVIDIA's compiler said of sources that it accepted, in a folder that all runs share: a source is compiled once on a
 * machine. What it rejects is compiled each time.
 */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = join(tmpdir(), "holdfast-nvcc-results");

let version: string | undefined;

/** The version that the compiler reports; empty without a compiler. */
export function nvccVersion(): string {
  version ??= spawnSync("nvcc", ["--version"], { encoding: "utf8" }).stdout ?? "";
  return version;
}

export interface KeptResult {
  /** Of an earlier run with these inputs; undefined if there was none. */
  readonly text: string | undefined;
  keep(text: string): void;
}

/** The result for these inputs: all that the compiler gets, except for the names of files. */
export function resultFor(...inputs: readonly string[]): KeptResult {
  const hash = createHash("sha256").update(JSON.stringify([nvccVersion(), ...inputs]));
  const path = join(folder, hash.digest("hex").slice(0, 32));
  return {
    text: readIfThere(path),
    keep(text) {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      // Another process may keep the same: the file appears whole or not at all.
      const part = `${path}-${process.pid}`;
      writeFileSync(part, text);
      renameSync(part, path);
    },
  };
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
