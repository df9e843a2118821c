/**
 * NVIDIA's headers, where a CUDA toolkit is installed: claims about them are written as C++ that does not compile where
 * one is wrong.
 */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

export interface HeaderClaims {
  /** "cuda.h" */
  readonly header: string;
  /** C++ declarations that the claims use. */
  readonly prelude?: string;
  readonly claims: readonly HeaderClaim[];
}

/** A constant expression of C++, and what it means that it is false. */
export interface HeaderClaim {
  readonly holds: string;
  readonly otherwise: string;
}

/** What there is to check against, or the reason why there is nothing. */
export function whyNoHeader(header: string): string | undefined {
  if (includeFolder(header) === undefined) return `no ${header} on this machine`;
  return spawnSync("g++", ["--version"]).status === 0 ? undefined : "this machine has no C++ compiler";
}

/** Everything that is wrong, as the compiler finds it; empty where all claims hold. */
export function findFalseClaims({ header, prelude = "", claims }: HeaderClaims): string[] {
  const folder = includeFolder(header);
  if (folder === undefined) throw new Error(`There is no ${header}.`);
  const source = [
    "#include <cstddef>",
    // Lets cuda.h declare every symbol that libcuda exports, earlier versions too.
    header === "cuda.h" ? "#define __CUDA_API_VERSION_INTERNAL" : "",
    `#include <${header}>`,
    "#include <type_traits>",
    prelude,
    ...claims.map(({ holds, otherwise }) => `static_assert(${holds}, ${JSON.stringify(otherwise)});`),
  ].join("\n");
  const flags = ["-std=c++17", "-fsyntax-only", "-fmax-errors=0", "-x", "c++", "-I", folder, "-"];
  const { stderr, status, error } = spawnSync("g++", flags, { input: source, encoding: "utf8" });
  if (error) throw error;
  const problems = stderr
    .split("\n")
    .filter((line) => line.includes("error:"))
    .map((line) => line.replace(/^.*?error: (static assertion failed: )?/, ""));
  if (status !== 0 && problems.length === 0) throw new Error(stderr);
  return problems;
}

function includeFolder(header: string): string | undefined {
  const { CUDA_HOME, CUDA_PATH } = process.env;
  return [CUDA_HOME, CUDA_PATH, "/usr/local/cuda", "/opt/cuda", "/usr"]
    .flatMap((toolkit) => (toolkit ? [join(toolkit, "include")] : []))
    .find((folder) => existsSync(join(folder, header)));
}
