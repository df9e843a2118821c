/** The contenders of `npm run bench:programs`, and one run of one of them. */

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "../../../test/support/repository.js";
import type { ProgramReport } from "./time-steps.js";
import type { ProgramName } from "./workloads.js";

export interface Contender {
  readonly name: string;
  /** Arguments of Node; the program's name comes last. */
  readonly args: readonly string[];
}

export type Outcome = { readonly report: ProgramReport } | { readonly absence: string };

const holdfast = [
  "--conditions=holdfast-source",
  join(repositoryRoot, "dist/bench/cpu/programs/holdfast.js"),
];
const peer = (file: string): string => join(repositoryRoot, "bench/cpu/peers", file);

/** The first is the one that the others are compared with. */
export const contenders: readonly Contender[] = [
  { name: "Holdfast", args: holdfast },
  { name: "Holdfast eager", args: [...holdfast, "--eager"] },
  { name: "jax-js wasm", args: [peer("programs-jax-js.mjs")] },
  { name: "TensorFlow.js wasm", args: [peer("programs-tensorflow-js.mjs"), "wasm"] },
  { name: "TensorFlow.js cpu", args: [peer("programs-tensorflow-js.mjs"), "cpu"] },
];

const limitMs = 5 * 60_000;

/** Trains one program in a process of its own. */
export function runContender({ args }: Contender, program: ProgramName): Outcome {
  const { status, stdout, stderr, error } = spawnSync(process.execPath, [...args, program], {
    encoding: "utf8",
    timeout: limitMs,
  });
  if (status === 0) return { report: JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as ProgramReport };
  const complaint = `${error ?? ""}\n${stderr}`;
  if (/ERR_MODULE_NOT_FOUND/.test(complaint))
    return { absence: "not installed; run npm run bench:programs -- --install" };
  // The line of the error, which is neither a place in a file nor a line of the stack.
  const line = complaint.split("\n").find((text) => /^\w*Error\b/.test(text));
  return { absence: line ?? complaint.trim().split("\n")[0] ?? `ended with ${status}` };
}
