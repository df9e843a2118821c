/** On the emulator, the products of wgmma complete at once, or when threads run in reverse order, when a thread waits for their group. */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { BareCuda } from "../support/bare-cuda.js";
import { ClusterKernels } from "../support/cluster-kernels.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);
const kernels = new ClusterKernels(bare, emulator);

afterEach(() => {
  if (!skip) emulator.reset();
});

const launchFailed = 719;
const orders = ["forward", "reversed"] as const;

function setOrder(order: (typeof orders)[number]): void {
  emulator.set("reversed", order === "reversed" ? 1 : 0);
}

/** Two groups, each with a product of 64 × 16 ones and 16 × 64 ones; then the tiles become twos. */
const shape = { blocks: 1, threads: 128, cluster: 1, bytes: 32 * 1024 };
const twoGroups = (after: string): string => `
  unsigned short* const ones = reinterpret_cast<unsigned short*>(memory);
  for (unsigned index = threadIdx.x; index < 8192; index += 128) ones[index] = 0x3f80;
  __syncthreads();
  float first[32] = {}, second[32] = {};
  const SmemOperand tile = smemOperand(memory);
  wgmmaSs<Bf16, 64>(first, tile, tile, false);
  wgmmaCommit();
  unsigned left[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  wgmmaRs<Bf16, 64>(second, left, smemOperand(memory, 8192), true);
  wgmmaCommit();
  left[0] = left[1] = left[2] = left[3] = 0;
  ${after}`;

function run(body: string): Float32Array {
  const out = bare.allocate(4 * 4);
  const store = `${body} if (threadIdx.x == 77) out[0] = a, out[1] = b, out[2] = first[9], out[3] = second[9];`;
  assert.deepEqual(kernels.run(shape, "float* out", store, [out]), [0, ""]);
  return bare.read(out, new Float32Array(4));
}

test("the products of a group are complete after the wait for it", { skip }, () => {
  for (const order of orders) {
    setOrder(order);
    const values = run(
      twoGroups(`
      wgmmaWait<1>();
      const float a = first[9], b = second[9];
      wgmmaWait<0>();`),
    );
    assert.deepEqual([...values], [16, order === "forward" ? 16 : 0, 16, 16]);
  }
});

test("in reverse order, a tile that changes before the wait shows in the result", { skip }, () => {
  for (const order of orders) {
    setOrder(order);
    const values = run(
      twoGroups(`
      wgmmaWait<1>();
      __syncthreads();
      for (unsigned index = threadIdx.x; index < 8192; index += 128) ones[index] = 0x4000;
      __syncthreads();
      const float a = first[9], b = 0;
      wgmmaWait<0>();`),
    );
    assert.deepEqual([...values], [16, 0, 16, order === "forward" ? 16 : 32]);
  }
});

test("in reverse order, a thread that ends before its products are complete is a fault", { skip }, () => {
  for (const order of orders) {
    setOrder(order);
    const [status, text] = kernels.run(shape, "float* out", twoGroups("out[threadIdx.x] = 1;"), [
      bare.allocate(4 * 128),
    ]);
    if (order === "forward") assert.deepEqual([status, text], [0, ""]);
    else {
      assert.equal(status, launchFailed);
      assert.match(text, /^hf: a thread that ended before its products completed/);
    }
    emulator.reset();
  }
});
