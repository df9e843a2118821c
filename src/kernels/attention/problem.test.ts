/** The launches of attention, and its validation. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { CallLog } from "../../../test/support/call-log.js";
import { withRuntime } from "../../../test/support/runtimes.js";
import { strict } from "../../driver/index.js";
import type { Runtime } from "../../runtime/index.js";
import { submit } from "../submit.js";
import { attentionBackwardCalls, attentionCalls } from "./attention.js";
import type { AttentionBackwardProblem, AttentionProblem } from "./problem.js";

/** A valid problem over new storages: 2 batches, 3 heads, 4 rows, 5 columns, width 6 and value width 7. */
function soundProblem(on: Runtime): AttentionProblem & AttentionBackwardProblem {
  const allocate = (name: string, rows: number, width: number) => ({
    storage: on.arena.allocate(2 * 3 * rows * width * 4, name),
    batchStride: 3 * rows * width,
    headStride: rows * width,
    rowStride: width,
  });
  return {
    ...{ dtype: "f32", batch: 2, heads: 3, rows: 4, columns: 5, width: 6, valueWidth: 7, scale: 1 },
    query: allocate("query", 4, 6),
    key: allocate("key", 5, 6),
    value: allocate("value", 5, 7),
    out: allocate("out", 4, 7),
    probabilities: allocate("probabilities", 4, 5).storage,
    outGradient: allocate("outGradient", 4, 7),
    queryGradient: allocate("queryGradient", 4, 6),
    keyGradient: allocate("keyGradient", 5, 6),
    valueGradient: allocate("valueGradient", 5, 7),
    scoreGradient: allocate("scoreGradient", 4, 5).storage,
  };
}

test("attention is one launch, and so is its backward pass; an empty batch launches nothing", () => {
  const log = new CallLog();
  withRuntime(
    {},
    ({ runtime }) =>
      runtime.step(() => {
        const problem = soundProblem(runtime);
        const launches = (change: Partial<AttentionProblem>): [number, number] => {
          const before = log.count("launch");
          submit(runtime, attentionCalls({ ...problem, ...change }));
          const between = log.count("launch");
          submit(runtime, attentionBackwardCalls({ ...problem, ...change }));
          return [between - before, log.count("launch") - between];
        };
        assert.deepEqual(launches({}), [1, 1]);
        assert.deepEqual(launches({ batch: 0 }), [0, 0]);
        assert.deepEqual(launches({ heads: 0 }), [0, 0]);
      }),
    (device) => log.wrap(strict(device)),
  );
});

test("inconsistent sizes, strides and storages are rejected with their numbers, before a launch", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const valid = soundProblem(runtime);
      const { query, key, out, keyGradient } = valid;
      const rejections: readonly [Partial<AttentionProblem & AttentionBackwardProblem>, RegExp][] = [
        [{ rows: 0 }, /rows is 0; pass a whole number from 1/],
        [{ batch: 1.5 }, /batch is 1\.5; pass a whole number from 0/],
        [{ query: { ...query, headStride: -1 } }, /query's head stride is -1; pass a whole number/],
        [{ key: { ...key, rowStride: 100 } }, /key takes 2224 bytes \(2×3×5×6 of f32\), and "key" has 720/],
        [{ probabilities: query.storage, columns: 700 }, /takes \d+ bytes .* Pass a larger storage/],
      ];
      for (const [change, message] of rejections) {
        for (const callsOf of [attentionCalls, attentionBackwardCalls])
          assert.throws(() => submit(runtime, callsOf({ ...valid, ...change })), {
            code: "BAD_ARGUMENT",
            message,
          });
      }
      const overlapping: [() => void, RegExp][] = [
        [
          () => submit(runtime, attentionCalls({ ...valid, out: { ...out, headStride: 6 } })),
          /attend: out's head stride of 6 makes its elements overlap; it must be at least 7/,
        ],
        [
          () =>
            submit(
              runtime,
              attentionBackwardCalls({ ...valid, keyGradient: { ...keyGradient, batchStride: 0 } }),
            ),
          /attendBackward: keyGradient's batch stride of 0 makes its elements overlap; it must be at least 6/,
        ],
        [
          () => submit(runtime, attentionCalls({ ...valid, mask: { ...query, columnStride: 40 } })),
          /mask takes \d+ bytes \(2×3×4×5 of f32\), and "query" has 576/,
        ],
      ];
      for (const [run, message] of overlapping) assert.throws(run, { code: "BAD_ARGUMENT", message });
    }),
  );
});

test("only f32 results can be stored as 16-bit floats, and only on CUDA", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const valid = soundProblem(runtime);
      const rejections: readonly [Partial<AttentionProblem>, RegExp][] = [
        [{ resultDtype: "f64" }, /results of f32 can't be stored as f64: those of f32 can, as f16 or bf16/],
        [{ dtype: "f64", resultDtype: "bf16" }, /results of f64 can't be stored as bf16/],
        ...(runtime.device.kind === "cuda"
          ? []
          : ([[{ resultDtype: "bf16" }, /the CPU kernels store f32, not bf16/]] satisfies [
              Partial<AttentionProblem>,
              RegExp,
            ][])),
      ];
      for (const [change, message] of rejections) {
        for (const callsOf of [attentionCalls, attentionBackwardCalls])
          assert.throws(() => submit(runtime, callsOf({ ...valid, ...change })), {
            code: "BAD_ARGUMENT",
            message,
          });
      }
    }),
  );
});

test("only f32 attention can read 16-bit floats, all of one dtype, and only on CUDA", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const valid = soundProblem(runtime);
      const { query, key } = valid;
      const halves = { query: { ...query, dtype: "bf16" }, key: { ...key, dtype: "f16" } } as const;
      const rejections: readonly [Partial<AttentionProblem>, RegExp][] = [
        [
          { query: { ...query, dtype: "f64" } },
          /query can't be read as f64 for f32: for f32 it can, as f16 or bf16/,
        ],
        [{ dtype: "f64", query: halves.query }, /query can't be read as bf16 for f64/],
        [halves, /key has f16 and another input bf16/],
        ...(runtime.device.kind === "cuda"
          ? []
          : ([[{ query: halves.query }, /the CPU kernels read f32, and query has bf16/]] satisfies [
              Partial<AttentionProblem>,
              RegExp,
            ][])),
      ];
      for (const [change, message] of rejections) {
        for (const callsOf of [attentionCalls, attentionBackwardCalls])
          assert.throws(() => submit(runtime, callsOf({ ...valid, ...change })), {
            code: "BAD_ARGUMENT",
            message,
          });
      }
    }),
  );
});

test("keys and values are not read beyond their last element, for every stride", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      // Two rows: a third one, in the place of a vector's next lane, would lie outside of all memory.
      const rowStride = 8 << 20;
      const allocate = (name: string, elements: number) => runtime.arena.allocate(elements * 4, name);
      const near = { batchStride: 0, headStride: 0, rowStride: 4 };
      const far = { storage: allocate("far", rowStride + 4), batchStride: 0, headStride: 0, rowStride };
      runtime.fill(far.storage, 0);
      const query = { storage: allocate("query", 4), ...near };
      runtime.fill(query.storage, 0);
      const probabilities = allocate("probabilities", 2);
      submit(
        runtime,
        attentionCalls({
          ...{ dtype: "f32", batch: 1, heads: 1, rows: 1, columns: 2, width: 4, valueWidth: 4, scale: 1 },
          query,
          key: far,
          value: far,
          out: { storage: allocate("out", 4), ...near },
          probabilities,
        }),
      );
      assert.deepEqual([...new Float32Array(runtime.read(probabilities).buffer)], [0.5, 0.5]);
    }),
  );
});
