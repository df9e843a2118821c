/** What the page takes the server's records to be is what the layers below write: proven by the compiler. */

import assert from "node:assert/strict";
import test from "node:test";
import {
  type MemorySample,
  type PlanRecord,
  type RunRecord,
  type RunStatus,
  type TroubleRecord,
  troubleKinds,
} from "../train/index.js";
import * as wire from "./page/wire.js";

/** Compiles only where each can stand for the other. */
type Same<One extends Other, Other extends Returned, Returned = One> = [One, Other, Returned];

export type Agreement = [
  Same<PlanRecord, wire.PlanRecord>,
  Same<MemorySample, wire.MemorySample>,
  Same<TroubleRecord, wire.TroubleRecord>,
  Same<RunRecord, wire.RunRecord>,
  RunStatus extends wire.RunStatus ? true : never,
];

test("the page's records are those that a run leaves, to the kinds of trouble", () => {
  assert.deepEqual(wire.troubleKinds, troubleKinds);
});
