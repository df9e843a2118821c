/** When plans are audited. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../units/index.js";
import { AuditTimes } from "./audit-times.js";

/** The calls out of `count` that were audited, if each call and each audit takes this long. */
function auditedCalls(count: number, { callMs, auditMs }: { callMs: number; auditMs: number }): number[] {
  const clock = new FakeClock();
  const times = new AuditTimes(clock);
  const audited: number[] = [];
  for (let call = 1; call <= count; call++) {
    if (times.isDue()) {
      times.measure(() => clock.advance(auditMs));
      audited.push(call);
    }
    clock.advance(callMs);
    times.noteCall();
  }
  return audited;
}

test("calls 2 to 8 of a plan are audited, and then every power of two", () => {
  const expected = [2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128];
  assert.deepEqual(auditedCalls(200, { callMs: 1, auditMs: 1000 }), expected);
});

test("a long run spends a thousandth of its time on audits", () => {
  const [callMs, auditMs] = [10, 1];
  const audited = auditedCalls(20_000, { callMs, auditMs });
  assert.ok(audited.length > 150, "audits continue to the end");
  assert.ok(audited.length * auditMs < 0.0012 * 20_000 * callMs);
});

test("an audit that throws stays due", () => {
  const times = new AuditTimes(new FakeClock());
  times.noteCall();
  assert.throws(() =>
    times.measure(() => {
      throw new Error("no");
    }),
  );
  assert.ok(times.isDue());
});
