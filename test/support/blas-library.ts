/** A BLAS library for tests, compiled on demand, so that none must be installed. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import koffi from "koffi";
import { repositoryRoot } from "./repository.js";

export interface BlasLibrary {
  readonly path: string;
  /** The number of GEMMs that it has computed. */
  readonly gemmCount: () => number;
  /** The number of threads that it was last set to. */
  readonly threads: () => number;
}

const compiled = new Map<string, BlasLibrary | undefined>();

/** Compiles test/fixtures/blas.c once, with macros defined; undefined if the machine has no C compiler. */
export function compileBlas(...macros: string[]): BlasLibrary | undefined {
  const key = macros.join();
  if (!compiled.has(key)) compiled.set(key, compile(macros));
  return compiled.get(key);
}

function compile(macros: readonly string[]): BlasLibrary | undefined {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-blas-"));
  process.once("exit", () => rmSync(folder, { recursive: true }));
  const path = join(folder, "libtestblas.so");
  const source = join(repositoryRoot, "test/fixtures/blas.c");
  const flags = ["-std=c99", "-O2", "-Wall", "-Werror", "-shared", "-fPIC"];
  try {
    execFileSync("cc", [...flags, ...macros.map((macro) => `-D${macro}`), source, "-o", path]);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  // Loaded at the first access: koffi must be configured before its first library.
  const count = (name: string) => koffi.load(path).func(`int ${name}()`)() as number;
  return { path, gemmCount: () => count("count_products"), threads: () => count("count_threads") };
}
