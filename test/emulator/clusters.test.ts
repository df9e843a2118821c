/**
 * The emulator runs clusters: their blocks run concurrently, and each block's memory is accessible to its
 * peers.
 */

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

const illegalAddress = 700;
const invalidClusterSize = 912;
const orders = ["forward", "reversed"] as const;

function setOrder(order: (typeof orders)[number]): void {
  emulator.set("reversed", order === "reversed" ? 1 : 0);
}

for (const order of orders) {
  test(`a thread knows its block and rank, also after others have run, ${order}`, { skip }, () => {
    setOrder(order);
    const shape = { blocks: 8, threads: 80 };
    const out = bare.allocate(8 * 80 * 16);
    const body = `
      unsigned* row = out + 4 * (blockIdx.x * blockDim.x + threadIdx.x);
      row[0] = clusterCtaRank();
      row[1] = blockIdx.x;
      clusterArrive();
      clusterWait();
      row[2] = clusterCtaRank() * 1000 + threadIdx.x;
      row[3] = blockIdx.x;
      memory[threadIdx.x] = 1;`;
    assert.deepEqual(kernels.run(shape, "unsigned* out", body, [out]), [0, ""]);
    const rows = bare.read(out, new Uint32Array(8 * 80 * 4));
    for (let index = 0; index < 8 * 80; index++) {
      const [block, thread] = [Math.floor(index / 80), index % 80];
      const rank = block % 4;
      assert.deepEqual(
        [...rows.slice(4 * index, 4 * index + 4)],
        [rank, block, 1000 * rank + thread, block],
        `block ${block}, thread ${thread}`,
      );
    }
  });
}

const exchange = (barrier: string, last: string): string => `
  unsigned* local = reinterpret_cast<unsigned*>(memory);
  const unsigned rank = clusterCtaRank(), next = (rank + 1) % 4;
  local[threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
  ${barrier}
  const unsigned found = mapaShared(local, next)[threadIdx.x];
  *mapaShared(local + 64 + threadIdx.x, next) = 7 * blockIdx.x + threadIdx.x;
  ${last}
  unsigned* row = out + 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  row[0] = found;
  row[1] = local[64 + threadIdx.x];`;
const namedBarrier = "clusterArrive(); clusterWait();";

/** The value that a thread reads from the next block, and the value that the previous block wrote to it. */
const exchanged = Array.from({ length: 8 * 64 }, (_, index) => {
  const [block, thread] = [Math.floor(index / 64), index % 64];
  const first = block - (block % 4);
  return [(first + ((block + 1) % 4)) * 1000 + thread, 7 * (first + ((block + 3) % 4)) + thread];
}).flat();

for (const order of orders) {
  test(`blocks read and write each other's memory between barriers of the cluster, ${order}`, {
    skip,
  }, () => {
    setOrder(order);
    const out = bare.allocate(8 * 64 * 8);
    const body = exchange(namedBarrier, namedBarrier);
    assert.deepEqual(kernels.run({ blocks: 8, threads: 64 }, "unsigned* out", body, [out]), [0, ""]);
    assert.deepEqual([...bare.read(out, new Uint32Array(8 * 64 * 2))], exchanged);
  });
}

test("without the barrier in between a peer's memory is still NaN", { skip }, () => {
  const out = bare.allocate(8 * 64 * 8);
  kernels.run({ blocks: 8, threads: 64 }, "unsigned* out", exchange("", namedBarrier), [out]);
  const actual = bare.read(out, new Uint32Array(8 * 64 * 2));
  assert.equal(actual[0], 0xffffffff);
});

test("the memory of a block that has ended can't be accessed", { skip }, () => {
  const out = bare.allocate(8 * 64 * 8);
  const [status, text] = kernels.run(
    { blocks: 8, threads: 64 },
    "unsigned* out",
    exchange(namedBarrier, ""),
    [out],
  );
  assert.equal(status, illegalAddress);
  assert.equal(
    text,
    "hf: an access to the dynamic shared memory of a block that has ended, block 3, thread 0",
  );
});

test("an access before, after or beyond a cluster's memory is a fault", { skip }, () => {
  const shape = { blocks: 2, threads: 1, cluster: 2, bytes: 4096 };
  const store = (offset: string) =>
    kernels.run(shape, "unsigned at", `volatile unsigned char* to = memory; to[${offset}] = 1;`, [
      { u32: 4096 },
    ]);
  assert.equal(store("at")[0], illegalAddress);
  emulator.reset();
  assert.equal(store("-(int)at")[0], illegalAddress);
  emulator.reset();
  const peer = (expression: string) =>
    kernels.run(shape, "unsigned at", `*${expression} = (unsigned char)at;`, [{ u32: 2 }]);
  assert.match(peer("mapaShared(memory + 1, at)")[1], /^hf: a peer that the cluster does not have in line 3/);
  emulator.reset();
  assert.equal(peer("mapaShared(at > 9 ? memory : reinterpret_cast<unsigned char*>(at), 0)")[0], 717);
});

test("the rank of a block in the address of a tile is a fault, because it changes the descriptor", {
  skip,
}, () => {
  const shape = { blocks: 2, threads: 128, cluster: 2, bytes: 32 * 1024 };
  const multiply = (address: string) =>
    kernels.run(
      shape,
      "unsigned mask",
      `
      const unsigned tile = ((unsigned)__cvta_generic_to_shared(memory) & ${address}) >> 4;
      float acc[32] = {};
      wgmmaSs<Bf16, 64, false, false>(acc, tile, tile + 512);`,
      [{ u32: 0x3ffff }],
    );
  assert.deepEqual(multiply("mask"), [0, ""]);
  const [status, fault] = multiply("(mask | ~0u)");
  assert.equal(status, illegalAddress);
  assert.match(fault, /^hf: the address of a tile reaches into the leading byte offset of its descriptor/);
});

test("dynamic shared memory begins as NaN in every block, and has the launch's size", { skip }, () => {
  const shape = { blocks: 8, threads: 64, cluster: 2, bytes: 227 * 1024 };
  const body = `
    const unsigned* words = reinterpret_cast<const unsigned*>(memory);
    unsigned isFresh = 1;
    for (unsigned index = threadIdx.x; index < ${shape.bytes} / 4; index += 64) isFresh &= words[index] == 0xffffffffu;
    out[blockIdx.x * 64 + threadIdx.x] = isFresh;
    __syncthreads();
    for (unsigned index = threadIdx.x; index < ${shape.bytes}; index += 64) memory[index] = 1;`;
  const out = bare.allocate(8 * 64 * 4);
  assert.deepEqual(kernels.run(shape, "unsigned* out", body, [out]), [0, ""]);
  assert.ok(bare.read(out, new Uint32Array(8 * 64)).every((isFresh) => isFresh === 1));
  const entry = kernels.load(shape, "unsigned* out", body);
  assert.equal(bare.tryLaunch(entry, 8, 64, [out], 0, shape.bytes - 16), 0);
  assert.match(emulator.lastFault(), /^hf: more dynamic shared memory than the launch has in line 2/);
});

test("matrix fragments come from the block's own warp, whichever thread runs in between", { skip }, () => {
  // Lane 31 reaches its row only after the other block has reached its own.
  const body = `
    float* rows = reinterpret_cast<float*>(memory);
    for (unsigned index = 0; index < 4; index++) rows[threadIdx.x * 4 + index] = (float)(blockIdx.x * 1000 + threadIdx.x * 4 + index);
    float floats[4];
    clusterArrive();
    if (threadIdx.x == 31) clusterWait();
    ldmatrixX4(floats, rows + threadIdx.x * 4);
    if (threadIdx.x != 31) clusterWait();
    out[blockIdx.x * 32 + threadIdx.x] = floats[1];`;
  const out = bare.allocate(2 * 32 * 4);
  assert.deepEqual(kernels.run({ blocks: 2, threads: 32, cluster: 2 }, "float* out", body, [out]), [0, ""]);
  const expected = Array.from({ length: 64 }, (_, index) => {
    const lane = index % 32;
    return (index < 32 ? 0 : 1000) + (8 + (lane >> 2)) * 4 + (lane % 4);
  });
  assert.deepEqual([...bare.read(out, new Float32Array(64))], expected);
});

test("a grid that is not a whole number of clusters is rejected", { skip }, () => {
  const entry = kernels.load({ blocks: 4, threads: 32 }, "", "memory[threadIdx.x] = 1;");
  for (const blocks of [1, 3, 6]) {
    assert.equal(bare.tryLaunch(entry, blocks, 32, [], 0, 1024), invalidClusterSize);
  }
  assert.equal(bare.tryLaunch(entry, 8, 32, [], 0, 1024), 0);
  assert.equal(bare.cuda.driver.status.cuStreamSynchronize(0), 0);
});

test("a cluster kernel with static shared memory, with too many blocks or for an older device is rejected", {
  skip,
}, () => {
  const shape = { blocks: 4, threads: 32 };
  const shared = kernels.code(
    shape,
    "float* out",
    "__shared__ float kept[32];\nkept[threadIdx.x] = 1.0f;\nout[0] = kept[0] + memory[0];",
  );
  const rejected = bare.compile(shared);
  assert.equal(rejected.status, 6);
  assert.match(
    rejected.log,
    /kernel\.cu:3:\d+: error: the blocks of a cluster run concurrently: use dynamicSharedMemory/,
  );
  const plain = "memory[threadIdx.x] = 1;";
  assert.match(
    bare.compile(kernels.code({ ...shape, cluster: 9 }, "", plain)).log,
    /a cluster has one to eight blocks/,
  );
  assert.equal(bare.compile(kernels.code(shape, "", plain), ["--gpu-architecture=sm_90a"]).status, 0);
  const older = bare.compile(kernels.code(shape, "", plain), ["--gpu-architecture=sm_80"]);
  assert.equal(older.status, 6);
  assert.match(older.log, /__cluster_dims__ is not supported/);
});

test("clusters of the largest supported blocks run concurrently", { skip }, () => {
  const shape = { blocks: 32, threads: 544, bytes: 227 * 1024 };
  const body = `
    unsigned* local = reinterpret_cast<unsigned*>(memory);
    unsigned sum = 0;
    for (unsigned round = 0; round < 4; round++) {
      local[threadIdx.x] = blockIdx.x + round;
      clusterArrive();
      clusterWait();
      for (unsigned rank = 0; rank < 4; rank++) sum += mapaShared(local, rank)[543 - threadIdx.x];
      clusterArrive();
      clusterWait();
    }
    out[blockIdx.x * 544 + threadIdx.x] = sum;`;
  const out = bare.allocate(32 * 544 * 4);
  assert.deepEqual(kernels.run(shape, "unsigned* out", body, [out]), [0, ""]);
  const results = bare.read(out, new Uint32Array(32 * 544));
  assert.ok(
    results.every((sum, index) => {
      const first = Math.floor(index / 544 / 4) * 4;
      return sum === 4 * (4 * first + 6) + 4 * 6;
    }),
  );
});
