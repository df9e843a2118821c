/**
 * NVIDIA's headers, if a CUDA toolkit is installed: claims about them are written as C++ that does not
 * compile if one is wrong.
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

/** A constant expression of C++, and the meaning of its being false. */
export interface HeaderClaim {
  readonly holds: string;
  readonly otherwise: string;
}

/** The headers to check against, or the reason why there are none. */
export function whyNoHeader(header: string): string | undefined {
  if (includeFolder(header) === undefined) return `no ${header} on this machine`;
  return spawnSync("g++", ["--version"]).status === 0 ? undefined : "this machine has no C++ compiler";
}

/** All false claims, as the compiler reports them; empty if all hold. */
export function findFalseClaims({ header, prelude = "", claims }: HeaderClaims): string[] {
  const folder = includeFolder(header);
  if (folder === undefined) throw new Error(`${header} does not exist.`);
  const source = [
    "#include <cstddef>",
    // Makes cuda.h declare every symbol that libcuda exports, also those of earlier versions.
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
