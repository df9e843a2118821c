/** Compares runs of one program: to the bit, or within a dtype's precision of f64. */

import assert from "node:assert/strict";
import { isNear, type Tolerance } from "../../tolerances.js";
import type { Elements, ProgramRun, StepRecord } from "./run.js";

/**
 * Every step of both has the same bits. Any NaN equals any NaN, because WebAssembly does not specify its
 * payload.
 */
export function sameBits(actual: ProgramRun, expected: ProgramRun, what: string): void {
  for (const [index, step] of expected.steps.entries()) {
    const record = actual.steps[index]!;
    assert.deepEqual([...record.keys()], [...step.keys()], `${what}, step ${index + 1}: the names`);
    for (const [name, elements] of step)
      sameElements(record.get(name)!, elements, `${what}, step ${index + 1}, ${name}`);
  }
}

function sameElements(actual: Elements, expected: Elements, what: string): void {
  assert.equal(
    actual.length,
    expected.length,
    `${what}: ${actual.length} elements instead of ${expected.length}`,
  );
  if (Buffer.compare(bytesOf(actual), bytesOf(expected)) === 0) return;
  const at = expected.findIndex((value, index) => !Object.is(actual[index], value));
  if (at >= 0)
    assert.fail(`${what}: element ${at} of ${expected.length} is ${actual[at]}, expected ${expected[at]}`);
}

function bytesOf({ buffer, byteOffset, byteLength }: Elements): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** The first element where two runs differ by more than a tolerance; undefined for none. */
export function firstFar(actual: ProgramRun, expected: ProgramRun, tolerance: Tolerance): string | undefined {
  for (const [index, step] of expected.steps.entries()) {
    const difference = firstFarInStep(actual.steps[index]!, step, tolerance);
    if (difference !== undefined) return `step ${index + 1}, ${difference}`;
  }
  return undefined;
}

function firstFarInStep(actual: StepRecord, expected: StepRecord, tolerance: Tolerance): string | undefined {
  const names = [...expected.keys()];
  if (names.join() !== [...actual.keys()].join())
    return `there is ${[...actual.keys()].join()} for ${names.join()}`;
  for (const [name, elements] of expected) {
    const values = actual.get(name)!;
    if (values.length !== elements.length)
      return `${name} has ${values.length} elements instead of ${elements.length}`;
    // In any element, terms as large as the largest may have cancelled.
    const scale = Math.max(1, largest(elements));
    for (const [at, value] of elements.entries()) {
      if (!isNear(values[at]!, value, tolerance, scale))
        return `${name}: element ${at} is ${values[at]}, expected ${value}`;
    }
  }
  return undefined;
}

/**
 * The first element where a run is farther from the expected one than a tolerance, and also much farther from
 * a reference than the expected one: where rounding errors grow, they grow in both.
 */
export function firstDifference(
  actual: ProgramRun,
  expected: ProgramRun,
  reference: ProgramRun,
  tolerance: Tolerance,
): string | undefined {
  for (const [index, step] of expected.steps.entries()) {
    for (const [name, elements] of step) {
      const [values, exact] = [actual.steps[index]!.get(name), reference.steps[index]!.get(name)];
      if (values?.length !== elements.length || exact?.length !== elements.length)
        return `step ${index + 1}, ${name}: ${values?.length} elements instead of ${elements.length}`;
      const allowed =
        tolerance.absolute + tolerance.relative * largest(exact) + 8 * distance(elements, exact);
      const difference = distance(values, elements);
      if (difference > allowed)
        return `step ${index + 1}, ${name}: ${difference} from eager, where ${allowed} is allowed`;
    }
  }
  return undefined;
}

/**
 * Ways to change inputs relatively: each by itself, and all in one direction, because long sums average
 * single changes.
 */
export function nudges(by: number): readonly ((fraction: number) => number)[] {
  return [(fraction) => 1 + by * (2 * fraction - 1), () => 1 + by, () => 1 - by];
}

/** The largest difference of two elements; NaNs and infinities must agree. */
function distance(a: Elements, other: Elements): number {
  let max = 0;
  for (const [at, value] of a.entries()) {
    if (Object.is(value, other[at])) continue;
    const difference = Math.abs(value - other[at]!);
    max = Math.max(max, Number.isNaN(difference) ? Infinity : difference);
  }
  return max;
}

function largest(elements: Elements): number {
  let max = 0;
  for (const value of elements) if (Number.isFinite(value)) max = Math.max(max, Math.abs(value));
  return max;
}
