/** Compares runs of one program: to the bit, or as near as a dtype can come to f64. */

import assert from "node:assert/strict";
import { isNear, type Tolerance } from "../../tolerances.js";
import { sameBytes } from "../same-bytes.js";
import type { Elements, ProgramRun, StepRecord } from "./run.js";

/** Every step of both has left the same bits. */
export function sameBits(found: ProgramRun, expected: ProgramRun, what: string): void {
  for (const [index, step] of expected.steps.entries()) {
    const own = found.steps[index]!;
    assert.deepEqual([...own.keys()], [...step.keys()], `${what}, step ${index + 1}: what there is`);
    for (const [name, elements] of step)
      sameBytes(own.get(name)!, elements, `${what}, step ${index + 1}, ${name}`);
  }
}

export function isSameBits(found: ProgramRun, expected: ProgramRun): boolean {
  try {
    sameBits(found, expected, "");
    return true;
  } catch {
    return false;
  }
}

/** The first place where two runs are further apart than a tolerance; undefined where there is none. */
export function firstFar(found: ProgramRun, expected: ProgramRun, tolerance: Tolerance): string | undefined {
  for (const [index, step] of expected.steps.entries()) {
    const far = firstFarInStep(found.steps[index]!, step, tolerance);
    if (far !== undefined) return `step ${index + 1}, ${far}`;
  }
  return undefined;
}

function firstFarInStep(found: StepRecord, expected: StepRecord, tolerance: Tolerance): string | undefined {
  const names = [...expected.keys()];
  if (names.join() !== [...found.keys()].join())
    return `there is ${[...found.keys()].join()} for ${names.join()}`;
  for (const [name, elements] of expected) {
    const own = found.get(name)!;
    if (own.length !== elements.length) return `${name} has ${own.length} elements for ${elements.length}`;
    // Terms as large as the largest may have cancelled each other in any element.
    const scale = Math.max(1, largest(elements));
    for (const [at, value] of elements.entries()) {
      if (!isNear(own[at]!, value, tolerance, scale))
        return `${name}: element ${at} is ${own[at]}, expected ${value}`;
    }
  }
  return undefined;
}

function largest(elements: Elements): number {
  let most = 0;
  for (const value of elements) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  return most;
}
