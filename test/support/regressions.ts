/**
 * A row of the regression suite: a rule that must hold, and its red proof. The same check runs on the sound
 * engine, where it must pass, and on a variant with the old fault injected, where it must fail: a check that
 * can't see the fault is no guard.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "holdfast";

export interface RegressionRow<Subject> {
  /** H1 to H15, C1 to C16, … */
  readonly row: string;
  /** The rule, as a sentence. */
  readonly rule: string;
  readonly sound: Subject;
  /** Variants, each with an old fault injected; the key describes it. */
  readonly faults: Readonly<Record<string, Subject>>;
  /** Fails, by an assertion or by an error of Holdfast, if the rule does not hold. */
  readonly check: (subject: Subject) => void | Promise<void>;
}

export function regressionRow<Subject>({ row, rule, sound, faults, check }: RegressionRow<Subject>): void {
  test(`${row}: ${rule}`, async () => {
    await check(sound);
  });
  for (const [fault, subject] of Object.entries(faults)) {
    test(`${row}, red proof: ${fault}`, async () => {
      await assert.rejects(
        async () => check(subject),
        (error) => error instanceof assert.AssertionError || error instanceof HoldfastError,
        `the check of ${row} does not detect the injected fault`,
      );
    });
  }
}
