/**
 * The property of every program: in f64, in its own dtype, compiled and replayed it gives the same results,
 * step for step. Eager, planned and replayed agree to the bit, also without some passes; f64 agrees within
 * the dtype's precision.
 */

import assert from "node:assert/strict";
import type { Device } from "holdfast";
import { tolerances } from "../../tolerances.js";
import { firstFar, nudges, sameBits } from "./compare.js";
import { hasSpecialLiteral } from "./literals.js";
import type { Program } from "./program.js";
import { type ProgramRun, runProgram } from "./run.js";

export interface ProgramDevices {
  /** Runs eagerly, and compiled steps directly. */
  readonly direct: Device;
  /** Replays compiled steps as graphs. */
  readonly replaying: Device;
  /**
   * The precision of GEMMs on both. TF32 and bf16 promise eager's bits only without the pass `autotune`.
   * Default: f32.
   */
  readonly precision?: "f32" | "tf32" | "bf16";
}

/** Statistics of the checked programs. */
export interface ProgramCounts {
  programs: number;
  instructions: number;
  rejections: number;
  /** Programs that are too ill-conditioned to compare f32 with f64. */
  illConditioned: number;
  /** Programs with special literals that f32 and f64 represent differently. */
  special: number;
  readonly ops: Set<string>;
}

export function noCounts(): ProgramCounts {
  return {
    ...{ programs: 0, instructions: 0, rejections: 0, illConditioned: 0, special: 0 },
    ops: new Set(),
  };
}

export function checkProgram(
  { direct, replaying, precision = "f32" }: ProgramDevices,
  original: Program,
  counts: ProgramCounts,
): void {
  const program =
    precision === "f32" ? original : { ...original, without: [...original.without, "autotune"] };
  const eager = runProgram(direct, program, { isCompiled: false });
  const reference =
    program.dtype === "f64" ? eager : runProgram(direct, program, { isCompiled: false, float: "f64" });
  const planned = runProgram(direct, program, { isCompiled: true });
  const replayed = runProgram(replaying, program, { isCompiled: true });

  counts.programs += 1;
  counts.instructions += program.instructions.length;
  counts.rejections += new Set(eager.rejections).size;
  for (const instruction of program.instructions) if ("op" in instruction) counts.ops.add(instruction.op);

  sameRejections(planned, eager);
  sameBits(replayed, planned, "replayed and planned");
  sameBits(planned, eager, "planned and eager");
  if (precision !== "f32") return;
  const tolerance = tolerances["against f64"][program.dtype];
  const difference = firstFar(eager, reference, tolerance);
  if (difference === undefined) return;
  // One of them overflows f32, or is rounded there, or is 0 there.
  if (hasSpecialLiteral(program)) {
    counts.special += 1;
    return;
  }
  // If changes of the inputs below the tolerance take the results beyond it, the program is ill-conditioned.
  const isSteep = nudges(tolerance.relative / 2).some((nudge) => {
    const nudged = runProgram(direct, program, { isCompiled: false, float: "f64", nudge });
    return firstFar(nudged, reference, tolerance) !== undefined;
  });
  assert.ok(isSteep, `eager is far from f64: ${difference}`);
  counts.illConditioned += 1;
}

/** The engine rejects a step and its trace with the same error. */
function sameRejections(compiled: ProgramRun, eager: ProgramRun): void {
  assert.deepEqual([...new Set(compiled.rejections)].sort(), [...new Set(eager.rejections)].sort());
}
