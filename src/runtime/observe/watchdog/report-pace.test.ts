/** How often stalls are reported if the run continues. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ReportPace } from "./report-pace.js";

test("the first two stalls are reported, then fewer and fewer, and at least one an hour", () => {
  const pace = new ReportPace(30_000);
  const reportedMs: number[] = [];
  // Steps of 30 s each, for a day.
  for (let nowMs = 30_000; nowMs <= 24 * 3_600_000; nowMs += 30_000)
    if (pace.allows(nowMs)) reportedMs.push(nowMs);
  assert.deepEqual(reportedMs.slice(0, 5), [30_000, 60_000, 120_000, 240_000, 480_000]);
  assert.ok(reportedMs.length < 40, `${reportedMs.length} reports`);
  const gaps = reportedMs.slice(1).map((nowMs, index) => nowMs - (reportedMs[index] ?? 0));
  assert.equal(Math.max(...gaps), 3_600_000);
});

test("omitted stalls are counted until takeOmitted()", () => {
  const pace = new ReportPace(100);
  assert.deepEqual(
    [0, 100, 150, 250].map((nowMs) => pace.allows(nowMs)),
    [true, true, false, false],
  );
  assert.equal(pace.takeOmitted(), 2);
  assert.equal(pace.takeOmitted(), 0);
});
