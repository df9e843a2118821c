/** Tries the libraries that ranks exchange bytes with, each in a process of its own. */

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { formatDuration } from "../units/index.js";

/** What was found, or why it does not work. */
export type LibraryTrial = { readonly name: string } | { readonly problem: string };

export interface TrialOptions {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** The GPU to try NCCL on. */
  readonly index?: number;
  readonly timeoutMs?: number;
}

/** Starts the library as a world of one, and exchanges a few bytes. Does not throw. */
export function tryLibrary(
  library: "mpi" | "nccl",
  { environment, index = 0, timeoutMs = 20_000 }: TrialOptions,
): LibraryTrial {
  const script = fileURLToPath(new URL("./trial-process.js", import.meta.url));
  const { stdout, stderr, error, signal } = spawnSync(process.execPath, [script, library, String(index)], {
    ...{ env: environment, encoding: "utf8", timeout: timeoutMs, killSignal: "SIGKILL" },
  });
  const line = stdout?.trim().split("\n").at(-1) ?? "";
  if (line.startsWith("{")) return JSON.parse(line) as LibraryTrial;
  if (error && "code" in error && error.code === "ETIMEDOUT")
    return { problem: `it has not started within ${formatDuration(timeoutMs)}` };
  const first = stderr
    ?.trim()
    .split("\n")
    .find((text) => text.trim() !== "");
  return { problem: first ?? error?.message ?? `its process ended by ${signal ?? "itself"}, without a word` };
}
