/** The property of every model program: eager and compiled give the same results, call for call. */

import assert from "node:assert/strict";
import type { Device } from "holdfast";
import { tolerances } from "../../tolerances.js";
import { firstDifference, firstFar, nudges, sameBits } from "../random-programs/compare.js";
import type { ModelProgram, ModelStep } from "./program.js";
import { runModel } from "./run.js";

export interface ModelDevice {
  readonly device: Device;
  /** Runs the reference of TF32 and bf16, in f32. */
  readonly cpu: Device;
  /** TF32 and bf16 promise eager's bits only without the pass `autotune`; with it, results are close. */
  readonly precision: "f32" | "tf32" | "bf16";
}

/** Statistics of the checked programs. */
export interface ModelCounts {
  programs: number;
  calls: number;
  events: number;
  rejections: number;
  /** Programs that were also compared with a tolerance. */
  near: number;
  /** Programs that are too ill-conditioned to be compared with a tolerance. */
  steep: number;
  /** How often each layer, loss, optimizer and schedule was generated. */
  readonly names: Map<string, number>;
}

export function noModelCounts(): ModelCounts {
  return { programs: 0, calls: 0, events: 0, rejections: 0, near: 0, steep: 0, names: new Map() };
}

export function checkModel(
  { device, cpu, precision }: ModelDevice,
  program: ModelProgram,
  counts: ModelCounts,
): void {
  const eager = runModel(device, program, { isCompiled: false });
  const exact = precision === "f32" ? [] : ["products"];
  const compiled = runModel(device, program, { isCompiled: true, without: exact });
  count(program, counts);
  counts.rejections += eager.rejections.length;
  assert.deepEqual(compiled.rejections, eager.rejections);
  sameBits(compiled, eager, "compiled and eager");
  if (precision === "f32" || program.without.includes("autotune")) return;
  const usual = runModel(device, program, { isCompiled: true });
  counts.near += 1;
  assert.deepEqual(usual.rejections, eager.rejections);
  const reference = runModel(cpu, program, { isCompiled: false });
  // TF32 has the ten bits of f16.
  const tolerance = tolerances["against f64"][precision === "tf32" ? "f16" : "bf16"];
  const difference = firstDifference(usual, eager, reference, tolerance);
  if (difference === undefined) return;
  // If inputs rounded to the precision take even f32 beyond the tolerance, as at the bend of a ReLU, the
  // program is ill-conditioned.
  const isSteep = nudges(tolerance.relative / 2).some((nudge) => {
    const nudged = runModel(cpu, program, { isCompiled: false, nudge });
    return firstFar(nudged, reference, tolerance) !== undefined;
  });
  assert.ok(isSteep, `compiled with all passes is far from eager: ${difference}`);
  counts.steep += 1;
}

function count(program: ModelProgram, counts: ModelCounts): void {
  counts.programs += 1;
  counts.calls += program.calls.length;
  for (const { events } of program.calls) counts.events += events.length;
  for (const name of namesOf(program)) counts.names.set(name, (counts.names.get(name) ?? 0) + 1);
}

/** The layers, the loss, the optimizer and the schedule of a program, by their exported names. */
export function namesOf({ steps, loss, optimizer, schedule }: ModelProgram): string[] {
  return [...layersOf(steps), loss.loss, optimizer.name, ...(schedule ? [schedule.name] : [])];
}

function layersOf(steps: readonly ModelStep[]): string[] {
  return steps.flatMap((step) => {
    if (step.kind === "layer") return [step.layer];
    if (step.kind === "repeat") return ["ModuleList", "Sequential", ...layersOf(step.steps)];
    return step.kind === "join" ? layersOf(step.steps) : [];
  });
}
