/** Compares runs of one program: to the bit, or within a dtype's precision of f64. */

import assert from "node:assert/strict";
import { isNear, type Tolerance } from "../../tolerances.js";
import type { Elements, ProgramRun, StepRecord } from "./run.js";

/**
 * Every step of both has the same bits. Any NaN equals any NaN, because WebAssembly does not specify its
 * payload.
 */
export function sameBits(found: ProgramRun, expected: ProgramRun, what: string): void {
  for (const [index, step] of expected.steps.entries()) {
    const own = found.steps[index]!;
    assert.deepEqual([...own.keys()], [...step.keys()], `${what}, step ${index + 1}: the names`);
    for (const [name, elements] of step)
      sameElements(own.get(name)!, elements, `${what}, step ${index + 1}, ${name}`);
  }
}

function sameElements(found: Elements, expected: Elements, what: string): void {
  assert.equal(
    found.length,
    expected.length,
    `${what}: ${found.length} elements instead of ${expected.length}`,
  );
  if (Buffer.compare(bytesOf(found), bytesOf(expected)) === 0) return;
  const at = expected.findIndex((value, index) => !Object.is(found[index], value));
  if (at >= 0)
    assert.fail(`${what}: element ${at} of ${expected.length} is ${found[at]}, expected ${expected[at]}`);
}

function bytesOf({ buffer, byteOffset, byteLength }: Elements): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** The first element where two runs differ by more than a tolerance; undefined for none. */
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
    if (own.length !== elements.length)
      return `${name} has ${own.length} elements instead of ${elements.length}`;
    // In any element, terms as large as the largest may have cancelled.
    const scale = Math.max(1, largest(elements));
    for (const [at, value] of elements.entries()) {
      if (!isNear(own[at]!, value, tolerance, scale))
        return `${name}: element ${at} is ${own[at]}, expected ${value}`;
    }
  }
  return undefined;
}

/**
 * The first element where a run is farther from the expected one than a tolerance, and also much farther from
 * a reference than the expected one: where rounding errors grow, they grow in both.
 */
export function firstApart(
  found: ProgramRun,
  expected: ProgramRun,
  reference: ProgramRun,
  tolerance: Tolerance,
): string | undefined {
  for (const [index, step] of expected.steps.entries()) {
    for (const [name, elements] of step) {
      const [own, exact] = [found.steps[index]!.get(name), reference.steps[index]!.get(name)];
      if (own?.length !== elements.length || exact?.length !== elements.length)
        return `step ${index + 1}, ${name}: ${own?.length} elements instead of ${elements.length}`;
      const allowed =
        tolerance.absolute + tolerance.relative * largest(exact) + 8 * distance(elements, exact);
      const apart = distance(own, elements);
      if (apart > allowed)
        return `step ${index + 1}, ${name}: ${apart} from eager, where ${allowed} is allowed`;
    }
  }
  return undefined;
}

/**
 * Ways to change inputs relatively: each by itself, and all in one direction, because long sums average
 * single changes.
 */
export function nudges(by: number): readonly ((drawn: number) => number)[] {
  return [(drawn) => 1 + by * (2 * drawn - 1), () => 1 + by, () => 1 - by];
}

/** The largest difference of two elements; NaNs and infinities must agree. */
function distance(one: Elements, other: Elements): number {
  let most = 0;
  for (const [at, value] of one.entries()) {
    if (Object.is(value, other[at])) continue;
    const difference = Math.abs(value - other[at]!);
    most = Math.max(most, Number.isNaN(difference) ? Infinity : difference);
  }
  return most;
}

function largest(elements: Elements): number {
  let most = 0;
  for (const value of elements) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  return most;
}
