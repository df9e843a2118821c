/** The state machine of a capture: what is rejected when, and that every way out ends idle. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { CaptureStateMachine } from "./capture-state.js";

const hasCode = (code: ErrorCode) => (error: unknown) =>
  error instanceof HoldfastError && error.code === code;

test("outside a capture nothing is rejected", () => {
  const gate = new CaptureStateMachine();
  gate.reject("allocation", "matmul", 48);
  gate.rejectInside("read-back", "loss");
  assert.equal(gate.isInside, false);
});

test("while observing, lazy resources may be made but values not looked at", () => {
  const gate = new CaptureStateMachine();
  gate.enter("step");
  gate.during("observing", () => {
    gate.reject("allocation", "scratch", 48);
    assert.throws(() => gate.rejectInside("read-back", "loss"), hasCode("CAPTURE_REJECTED"));
  });
});

test("while running and recording, an allocation is rejected with its size, its op and the capture's name", () => {
  const gate = new CaptureStateMachine();
  gate.enter("train step");
  for (const pass of ["running", "recording"] as const) {
    gate.during(pass, () => {
      assert.throws(
        () => gate.reject("allocation", "matmul", 48 * 1024),
        /^HoldfastError \[CAPTURE_REJECTED\]: allocation of 48 KiB by matmul inside capture "train step"/,
      );
    });
  }
});

test("between the passes the engine itself may read and write", () => {
  const gate = new CaptureStateMachine();
  gate.enter("step");
  gate.during("observing", () => undefined);
  gate.rejectInside("read-back", "loss");
  gate.reject("allocation", "snapshot");
});

test("captures and passes don't nest, and a rejected call changes nothing", () => {
  const gate = new CaptureStateMachine();
  assert.throws(() => gate.during("recording", () => undefined), hasCode("CAPTURE_ORDER"));
  gate.enter("outer");
  assert.throws(() => gate.enter("inner"), /"inner" inside capture "outer"/);
  gate.during("recording", () => {
    assert.throws(() => gate.during("running", () => undefined), hasCode("CAPTURE_ORDER"));
    assert.equal(gate.state, "recording");
  });
  assert.equal(gate.state, "preparing");
});

test("leaving is harmless when repeated, and possible inside a pass", () => {
  const gate = new CaptureStateMachine();
  assert.equal(gate.leave(), false);
  gate.enter("step");
  gate.during("recording", () => assert.equal(gate.leave(), true));
  assert.equal(gate.state, "idle");
  assert.equal(gate.leave(), false);
  gate.enter("again");
});

test("an exception in a pass ends the pass", () => {
  const gate = new CaptureStateMachine();
  gate.enter("step");
  assert.throws(() =>
    gate.during("recording", () => {
      throw new Error("user code");
    }),
  );
  assert.equal(gate.isInside, false);
});
