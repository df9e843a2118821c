/** The same step in PyTorch or JAX, by a peer's script in its own process. */

import { spawnSync } from "node:child_process";
import type { GemmPrecision } from "../../src/driver/index.js";

export interface PeerRun {
  /** "torch eager" */
  readonly name: string;
  readonly precision: GemmPrecision;
  readonly stepMs: number;
}

export interface PeerOutcome {
  readonly runs: readonly PeerRun[];
  /** Its output, for the results file. */
  readonly text: string;
  readonly failure?: string;
}

const precisions: Readonly<Record<string, GemmPrecision>> = { fp32: "f32", tf32: "tf32", bf16: "bf16" };

/**
 * Runs the script in its modes ("eager", "graph", "compile", "compilegraph"); it prints a line for each mode
 * and precision.
 */
export function runPeer(script: string, modes: readonly string[], limitMs: number): PeerOutcome {
  const { stdout, stderr, error, status } = spawnSync("python3", [script, ...modes], {
    encoding: "utf8",
    timeout: limitMs,
    env: { ...process.env, PYTHONUNBUFFERED: "1", PYTHONDONTWRITEBYTECODE: "1" },
  });
  const text = (stdout ?? "").trim();
  const runs = [...text.matchAll(/^((?:torch|jax) .*?) (fp32|tf32|bf16)\s+([\d.]+) ms\/step/gm)].map(
    ([, name, precision, ms]): PeerRun => ({
      name: name!.trim(),
      precision: precisions[precision!]!,
      stepMs: Number(ms),
    }),
  );
  if (status === 0) return { runs, text };
  const reason = error?.message ?? (stderr ?? "").trim().split("\n").at(-1) ?? "";
  return { runs, text, failure: `${script} ended with ${status}: ${reason}` };
}
