/** The state machine of a capture: its rejections by state, and that every exit leads to idle. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { CaptureStateMachine } from "./capture-state.js";

const hasCode = (code: ErrorCode) => (error: unknown) =>
  error instanceof HoldfastError && error.code === code;

test("outside a capture nothing is rejected", () => {
  const captureState = new CaptureStateMachine();
  captureState.reject("allocation", "matmul", 48);
  captureState.rejectInside("read-back", "loss");
  assert.equal(captureState.isInside, false);
});

test("while observing, lazy resources may be created but values not read", () => {
  const captureState = new CaptureStateMachine();
  captureState.enter("step");
  captureState.during("observing", () => {
    captureState.reject("allocation", "scratch", 48);
    assert.throws(() => captureState.rejectInside("read-back", "loss"), hasCode("CAPTURE_REJECTED"));
  });
});

test("while running and recording, an allocation is rejected with its size, its op and the capture's name", () => {
  const captureState = new CaptureStateMachine();
  captureState.enter("train step");
  for (const pass of ["running", "recording"] as const) {
    captureState.during(pass, () => {
      assert.throws(
        () => captureState.reject("allocation", "matmul", 48 * 1024),
        /^HoldfastError \[CAPTURE_REJECTED\]: Allocation of 48 KiB by matmul is not allowed inside capture "train step"/,
      );
    });
  }
});

test("between the passes the engine may read and write", () => {
  const captureState = new CaptureStateMachine();
  captureState.enter("step");
  captureState.during("observing", () => undefined);
  captureState.rejectInside("read-back", "loss");
  captureState.reject("allocation", "snapshot");
});

test("captures and passes do not nest, and a rejected call changes nothing", () => {
  const captureState = new CaptureStateMachine();
  assert.throws(() => captureState.during("recording", () => undefined), hasCode("CAPTURE_ORDER"));
  captureState.enter("outer");
  assert.throws(() => captureState.enter("inner"), /"inner" inside capture "outer"/);
  captureState.during("recording", () => {
    assert.throws(() => captureState.during("running", () => undefined), hasCode("CAPTURE_ORDER"));
    assert.equal(captureState.state, "recording");
  });
  assert.equal(captureState.state, "preparing");
});

test("leave() is idempotent, and legal inside a pass", () => {
  const captureState = new CaptureStateMachine();
  assert.equal(captureState.leave(), false);
  captureState.enter("step");
  captureState.during("recording", () => assert.equal(captureState.leave(), true));
  assert.equal(captureState.state, "idle");
  assert.equal(captureState.leave(), false);
  captureState.enter("again");
});

test("an exception in a pass ends the pass", () => {
  const captureState = new CaptureStateMachine();
  captureState.enter("step");
  assert.throws(() =>
    captureState.during("recording", () => {
      throw new Error("user code");
    }),
  );
  assert.equal(captureState.isInside, false);
});
