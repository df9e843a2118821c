/**
 * A sample of a test's cases that changes every day, for cases whose results are kept between runs, such as what NVIDIA's compiler says of
 * a kernel: after some days all were tried, and `npm run test:long` tries all of them. TEST_DAY=number repeats a day.
 */

import { isThorough } from "./effort.js";

const msPerDay = 86_400_000;
const today = Number(process.env["TEST_DAY"] ?? Math.floor(Date.now() / msPerDay));

export interface DaySample<Case> {
  readonly cases: readonly Case[];
  /** For the diagnostics of the test. */
  readonly note: string;
}

/** One case out of `days`; the next ones tomorrow. */
export function sampleOfDay<Case>(all: readonly Case[], days: number, day = today): DaySample<Case> {
  const cases = isThorough ? all : all.filter((_, index) => (index + day) % days === 0);
  return { cases, note: `TEST_DAY=${day}: ${cases.length} of ${all.length}` };
}
