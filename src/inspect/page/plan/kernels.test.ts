/** Kernels are summed over their calls; a kernel without measurements has no time and no share. */

import assert from "node:assert/strict";
import test from "node:test";
import type { CallReport } from "../wire.js";
import { kernelRows, sumTimes } from "./kernels.js";

const call = (kernel: string, us: number | undefined, bytes: number): CallReport => ({
  op: kernel,
  kernel,
  kind: "elementwise",
  shape: "[4]",
  phase: "forward",
  stream: 0,
  readBytes: bytes,
  writtenBytes: bytes,
  us,
});

test("calls of one kernel become one row, the longest first, with its share of the measured time", () => {
  const rows = kernelRows([call("add", 10, 4), call("matmul", 70, 8), call("add", 20, 4)]);
  assert.deepEqual(
    rows.map(({ kernel, calls, us, share, bytes }) => [kernel, calls, us, share, bytes]),
    [
      ["matmul", 1, 70, 0.7, 16],
      ["add", 2, 30, 0.3, 16],
    ],
  );
});

test("without measured times the rows are sorted by bytes", () => {
  const rows = kernelRows([call("small", undefined, 1), call("large", undefined, 9)]);
  assert.deepEqual(
    rows.map(({ kernel, us, share }) => [kernel, us, share]),
    [
      ["large", undefined, undefined],
      ["small", undefined, undefined],
    ],
  );
});

test("the total time of calls has its share of copies, if times were measured", () => {
  assert.equal(sumTimes([call("add", undefined, 4)]), undefined);
  const calls = [call("add", 10, 4), call("copy", 3, 4), call("indexed copy", 2, 4), call("copyist", 5, 4)];
  assert.deepEqual(sumTimes(calls), { us: 20, copiesUs: 5 });
});
