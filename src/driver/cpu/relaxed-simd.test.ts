/** Relaxed SIMD: if it is reported it works, in worker threads too. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { generousTimeoutMs } from "../../../test/support/timeouts.js";
import { compileKernel } from "./kernel.js";
import { hasRelaxedSimd } from "./relaxed-simd.js";
import { encodeModule } from "./wasm.js";
import { WorkerPool } from "./worker-pool.js";

const reason = !hasRelaxedSimd() && "this engine has no relaxed SIMD";

/** Each block does enough multiply-adds to be worth sharing, and stores their sum: 3 · turns in each lane. */
const turns = 50_000;
const kernel = {
  name: "sumOfProducts",
  parameters: ["out"],
  wasm: encodeModule([
    {
      name: "sumOfProducts",
      parameters: ["i32", "i32", "i32"],
      results: [],
      body: (code) => {
        const [block, endBlock, out] = [code.parameter(0), code.parameter(1), code.parameter(2)];
        const left = code.local("i32");
        const sum = code.local("v128");
        code.loop((nextBlock) => {
          code.f32(0).op("f32x4.splat").set(sum).i32(turns).set(left);
          code.loop((again) => {
            code.f32(1.5).op("f32x4.splat").f32(2).op("f32x4.splat").get(sum);
            code.op("f32x4.relaxed_madd").set(sum);
            code.get(left).i32(-1).op("i32.add").tee(left).branchIf(again);
          });
          code.get(out).get(block).i32(16).op("i32.mul").op("i32.add").get(sum).memory("v128.store");
          code.get(block).i32(1).op("i32.add").tee(block).get(endBlock).op("i32.lt_u").branchIf(nextBlock);
        });
      },
    },
  ]),
} as const;

test("the answer is the same every time", () => {
  assert.equal(hasRelaxedSimd(), hasRelaxedSimd());
});

test("a module with relaxed instructions compiled on the main thread runs in worker threads", {
  skip: reason,
}, () => {
  const blocks = 64;
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
  const pool = new WorkerPool(2, memory);
  const loaded = { id: 1, name: kernel.name, ...compileKernel(kernel, memory) };
  pool.load(loaded);
  const deadlineMs = performance.now() + generousTimeoutMs;
  const sums = new Float32Array(memory.buffer, 0, blocks * 4);
  do {
    sums.fill(0);
    pool.run(loaded, blocks, [0, 0, 0]);
    assert.ok(
      sums.every((sum) => sum === 3 * turns),
      "a block has another sum",
    );
    assert.ok(performance.now() < deadlineMs, `no worker took part within ${generousTimeoutMs} ms`);
  } while (pool.statistics.workerBlocks === 0);
  pool.close();
});
