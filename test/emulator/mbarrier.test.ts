/** The emulator implements mbarriers, bulk copies and numbered barriers, and detects deadlocks. */

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

const misaligned = 716;
const illegalAddress = 700;
const launchFailed = 719;
const orders = ["forward", "reversed"] as const;

function setOrder(order: (typeof orders)[number]): void {
  emulator.set("reversed", order === "reversed" ? 1 : 0);
}

const rounds = 11;
const ringShape = { blocks: 4, threads: 160, cluster: 2, bytes: 4096 };
const tiles = Float32Array.from({ length: 4 * rounds * 128 }, (_, index) => (index % 61) - 20);
const ringSums = Array.from({ length: 4 * 128 }, (_, index) => {
  const [block, thread] = [Math.floor(index / 128), index % 128];
  let sum = 0;
  for (let round = 0; round < rounds; round++) {
    sum = 2 * sum + tiles[(block * rounds + round) * 128 + ((thread + 32) % 128)]!;
  }
  return sum;
});

/**
 * The last warp loads tiles of 128 floats into a ring of three. The others consume them and arrive at the
 * mbarriers of both blocks of the cluster, so that neither runs ahead.
 */
const ring = (take: string, awaitEmpty: string): string => `
  Mbarrier* full = reinterpret_cast<Mbarrier*>(memory), *empty = full + 3;
  float* tiles = reinterpret_cast<float*>(memory + 1024);
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < 3; stage++) {
      mbarrierInit(full + stage, 1);
      mbarrierInit(empty + stage, 8);
    }
    fenceMbarrierInit();
  }
  clusterArrive();
  clusterWait();
  if (threadIdx.x / 32 == 4) {
    if (threadIdx.x % 32 == 0) {
      for (unsigned round = 0; round < ${rounds}; round++) {
        const unsigned stage = round % 3, parity = round / 3 % 2;
        ${awaitEmpty}
        mbarrierArriveExpectTx(full + stage, 512);
        const float* from = input + (blockIdx.x * ${rounds} + round) * 128;
        cpAsyncBulk(tiles + stage * 128, from, 256, full + stage);
        cpAsyncBulk(tiles + stage * 128 + 64, from + 64, 256, full + stage);
      }
    }
    __syncwarp();
  } else {
    float sum = 0.0f;
    for (unsigned round = 0; round < ${rounds}; round++) {
      const unsigned stage = round % 3, parity = round / 3 % 2;
      ${take}
      __syncwarp();
      if (threadIdx.x % 32 < 2) mbarrierArrive(mapaShared(empty + stage, threadIdx.x % 32));
      if (parity > 1) return;
    }
    out[blockIdx.x * 128 + threadIdx.x] = sum;
  }
  clusterArrive();
  clusterWait();`;
const awaitFull = "mbarrierWait(full + stage, parity);";
const add = "sum = 2.0f * sum + tiles[stage * 128 + (threadIdx.x + 32) % 128];";
const awaitEmpty = "mbarrierWait(empty + stage, parity ^ 1);";

function runRing(body: string): [number, string, number[]] {
  const [input, out] = [bare.put(tiles), bare.put(new Float32Array(4 * 128))];
  const [status, text] = kernels.run(ringShape, "const float* input, float* out", body, [input, out]);
  return [status, text, status === 0 ? [...bare.read(out, new Float32Array(4 * 128))] : []];
}

for (const order of orders) {
  test(`one warp loads tiles into a ring and others consume them, over several rounds, ${order}`, {
    skip,
  }, () => {
    setOrder(order);
    assert.deepEqual(runRing(ring(awaitFull + add, awaitEmpty)), [0, "", ringSums]);
  });
}

test("a thread that reads a tile before its mbarrier phase completes reads NaN, if copies are late", {
  skip,
}, () => {
  setOrder("reversed");
  const [status, , totals] = runRing(ring(add + awaitFull, awaitEmpty));
  assert.equal(status, 0);
  assert.ok(totals.every(Number.isNaN));
});

test("a tile that is overwritten before others have consumed it is detected", { skip }, () => {
  const [status, , totals] = runRing(ring(awaitFull + add, "if (parity > 1) return;"));
  assert.notDeepEqual([status, totals], [0, ringSums]);
});

for (const order of orders) {
  test(`some threads of a block meet at numbered barriers, independently of others, ${order}`, {
    skip,
  }, () => {
    setOrder(order);
    // Two groups of every third warp rotate values among themselves, a different number of times; the third
    // group is idle.
    const body = `
      const unsigned group = threadIdx.x / 32 % 3, id = threadIdx.x / 96 * 32 + threadIdx.x % 32;
      unsigned* values = reinterpret_cast<unsigned*>(memory) + 64 * group;
      unsigned value = 64 * group + id;
      if (group < 2) {
        for (unsigned round = 0; round < 2 + 3 * group; round++) {
          values[id] = value;
          namedBarrierSync(1 + group, 64);
          value = values[(id + 33) % 64] + 1;
          namedBarrierSync(1 + group, 64);
        }
      }
      out[blockIdx.x * 192 + threadIdx.x] = value;`;
    const out = bare.allocate(2 * 192 * 4);
    assert.deepEqual(kernels.run({ blocks: 2, threads: 192, cluster: 2 }, "unsigned* out", body, [out]), [
      0,
      "",
    ]);
    const expected = Array.from({ length: 2 * 192 }, (_, index) => {
      const group = Math.floor((index % 96) / 32);
      const id = Math.floor((index % 192) / 96) * 32 + (index % 32);
      const times = group < 2 ? 2 + 3 * group : 0;
      return 64 * group + ((id + 33 * times) % 64) + times;
    });
    assert.deepEqual([...bare.read(out, new Uint32Array(2 * 192))], expected);
  });
}

test("a numbered barrier does not release threads that wait at another", { skip }, () => {
  // Warps 1 and 2 meet often before warp 3 stores the values that warp 0 waits for.
  const body = `
    unsigned* stored = reinterpret_cast<unsigned*>(memory);
    const unsigned warp = threadIdx.x / 32;
    if (warp == 1 || warp == 2) for (unsigned round = 0; round < 5; round++) namedBarrierSync(1, 64);
    if (warp >= 2) namedBarrierSync(3, 64);
    if (warp == 3) stored[threadIdx.x % 32] = 5;
    if (warp % 3 == 0) namedBarrierSync(2, 64);
    if (warp == 0) out[threadIdx.x] = stored[threadIdx.x];`;
  const out = bare.allocate(128);
  assert.deepEqual(kernels.run({ blocks: 1, threads: 128, cluster: 1 }, "unsigned* out", body, [out]), [
    0,
    "",
  ]);
  assert.deepEqual(
    [...bare.read(out, new Uint32Array(32))],
    Array.from({ length: 32 }, () => 5),
  );
});

const stalls = [
  {
    name: "an mbarrier without arrivals",
    body: `Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);
      if (threadIdx.x == 0) mbarrierInit(mbarrier, 2);
      __syncthreads();
      if (blockIdx.x == 1 && threadIdx.x < 32) { if (threadIdx.x == 5) mbarrierArriveExpectTx(mbarrier, 64); mbarrierWait(mbarrier, 0); }`,
    text: "32 of 64 threads of block 1 wait at an mbarrier that lacks 1 of 2 arrivals and 64 bytes in line 6",
  },
  {
    name: "a cluster's barrier that one thread does not reach",
    body: "if (blockIdx.x == 1 && threadIdx.x == 9) return;\nclusterArrive();\nclusterWait(); memory[0] = 1;",
    text:
      "64 of 64 threads of block 0 wait at the cluster's barrier, with 127 of 128 arrivals, in line 5; " +
      "63 of 64 threads of block 1 wait at the cluster's barrier, with 127 of 128 arrivals, in line 5",
  },
  {
    name: "a numbered barrier with too few",
    body: "if (blockIdx.x == 0 && threadIdx.x < 32) namedBarrierSync(3, 64); memory[0] = 1;",
    text: "32 of 64 threads of block 0 wait at barrier 3, with 32 of 64 arrivals, in line 3",
  },
  {
    name: "a block's barrier that one thread does not reach",
    body: "if (threadIdx.x != 9 || blockIdx.x != 1) __syncthreads(); memory[0] = 1;",
    text: "63 of 64 threads of block 1 wait at the block's barrier in line 3",
  },
  {
    name: "a late wait at an mbarrier",
    body: `Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);
      if (threadIdx.x == 0) mbarrierInit(mbarrier, 1);
      __syncthreads();
      if (blockIdx.x == 0 && threadIdx.x == 0) mbarrierWait(mbarrier, 0);
      if (blockIdx.x == 0 && threadIdx.x == 1) { mbarrierArrive(mbarrier); mbarrierArrive(mbarrier); }`,
    text: "1 of 64 threads of block 0 wait at an mbarrier that lacks 1 of 1 arrivals and 0 bytes in line 6",
  },
];
for (const { name, body, text } of stalls) {
  test(`a deadlock is detected: ${name}`, { skip }, () => {
    assert.deepEqual(kernels.run({ blocks: 2, threads: 64, cluster: 2 }, "", body, []), [
      launchFailed,
      `hf: no thread can continue; ${text}`,
    ]);
  });
}

const misuses: readonly { name: string; body: string; status: number; pattern: RegExp }[] = [
  {
    name: "an uninitialised mbarrier",
    body: "mbarrierArrive(mbarrier);",
    status: launchFailed,
    pattern: /an mbarrier that was not initialised in line 4/,
  },
  {
    name: "a misaligned mbarrier",
    body: "mbarrierInit(static_cast<Mbarrier*>(static_cast<void*>(memory + 4)), 1);",
    status: misaligned,
    pattern: /an mbarrier at a misaligned/,
  },
  {
    name: "an mbarrier in device memory",
    body: "mbarrierInit(reinterpret_cast<Mbarrier*>(input), 1);",
    status: illegalAddress,
    pattern: /an mbarrier outside dynamic shared memory/,
  },
  {
    name: "a wait at a peer's mbarrier",
    body: "mbarrierInit(mbarrier, 1); mbarrierWait(mapaShared(mbarrier, 1), 0);",
    status: illegalAddress,
    pattern: /an mbarrier of a peer/,
  },
  {
    name: "an arrival too many",
    body: "mbarrierInit(mbarrier, 1); mbarrierArriveExpectTx(mbarrier, 16); mbarrierArrive(mbarrier);",
    status: launchFailed,
    pattern: /more arrivals at an mbarrier than its phase takes/,
  },
  {
    name: "a cluster's barrier without arrival",
    body: "clusterWait();",
    status: launchFailed,
    pattern: /waits for its cluster without an arrival/,
  },
  {
    name: "a cluster's barrier without wait",
    body: "clusterArrive(); clusterArrive();",
    status: launchFailed,
    pattern: /arrives in its cluster twice/,
  },
  {
    name: "barrier 0",
    body: "namedBarrierSync(0, 32);",
    status: launchFailed,
    pattern: /not one of 1 to 15/,
  },
  {
    name: "a barrier for 40",
    body: "namedBarrierSync(1, 40);",
    status: launchFailed,
    pattern: /a barrier for 40 threads/,
  },
];
for (const { name, body, status, pattern } of misuses) {
  test(`a fault is reported with its line: ${name}`, { skip }, () => {
    const whole = `Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);\n${body}\nif (input == 0) mbarrierArrive(mbarrier);`;
    const shape = { blocks: 2, threads: 32, cluster: 2 };
    const [actual, text] = kernels.run(shape, "const float* input", whole, [bare.allocate(256)]);
    assert.equal(actual, status);
    assert.match(text, pattern);
    assert.match(text, /in line 4, block 0, thread 0$/);
  });
}

test("a bulk copy has a multiple of 16 aligned bytes, from device memory to the block's own shared memory", {
  skip,
}, () => {
  const shape = { blocks: 2, threads: 1, cluster: 2 };
  const bring = (to: string, from: string, bytes: number): [number, string] => {
    const body = `Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);
      mbarrierInit(mbarrier, 1);
      mbarrierArriveExpectTx(mbarrier, ${bytes});
      cpAsyncBulk(${to}, ${from}, ${bytes}, mbarrier);
      mbarrierWait(mbarrier, 0);
      clusterArrive();
      clusterWait();`;
    emulator.reset();
    return kernels.run(shape, "const float* input", body, [bare.put(new Float32Array(64))]);
  };
  assert.deepEqual(bring("memory + 16", "input + 4", 32), [0, ""]);
  const odd = "hf: a copy at a misaligned address in line 6, block 0, thread 0";
  assert.deepEqual(bring("memory + 24", "input", 32), [misaligned, odd]);
  assert.deepEqual(bring("memory + 16", "input + 1", 32), [misaligned, odd]);
  assert.deepEqual(bring("memory + 16", "input", 24), [misaligned, odd]);
  const stray =
    "hf: a copy that does not go to the block's dynamic shared memory in line 6, block 0, thread 0";
  assert.deepEqual(bring("memory + 1008", "input", 32), [illegalAddress, stray]);
  assert.deepEqual(bring("mapaShared(memory + 16, 1)", "input", 32), [illegalAddress, stray]);
  assert.equal(
    bring("memory + 16", "input ? reinterpret_cast<const float*>(memory + 64) : input", 32)[0],
    illegalAddress,
  );
});

test("a block that ends before its copies complete is detected, if they are late", { skip }, () => {
  setOrder("reversed");
  const body = `Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);
    mbarrierInit(mbarrier, 1);
    mbarrierArriveExpectTx(mbarrier, 32);
    cpAsyncBulk(memory + 16, input, 32, mbarrier);`;
  const input = [bare.put(new Float32Array(64))];
  const [status, text] = kernels.run(
    { blocks: 2, threads: 1, cluster: 2 },
    "const float* input",
    body,
    input,
  );
  assert.equal(status, launchFailed);
  assert.match(text, /a block that ended before a copy completed/);
});

test("mbarriers and numbered barriers work in a kernel without clusters", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(96) hf(const float* input, float* out) {
       dynamicSharedMemory(memory, 1024);
       Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);
       float* tile = reinterpret_cast<float*>(memory + 16);
       if (threadIdx.x == 0) mbarrierInit(mbarrier, 1);
       __syncthreads();
       if (threadIdx.x == 95) {
         mbarrierArriveExpectTx(mbarrier, 256);
         cpAsyncBulk(tile, input + 64 * blockIdx.x, 256, mbarrier);
       }
       if (threadIdx.x < 64) {
         mbarrierWait(mbarrier, 0);
         namedBarrierSync(4, 64);
         out[64 * blockIdx.x + threadIdx.x] = tile[63 - threadIdx.x];
       }
     }`,
    "hf",
  );
  const input = Float32Array.from({ length: 128 }, (_, index) => index);
  for (const order of orders) {
    setOrder(order);
    const out = bare.allocate(512);
    bare.launch(entry, 2, 96, [bare.put(input), out], 0, 1024);
    const expected = Array.from({ length: 128 }, (_, index) => (index < 64 ? 63 : 127) - (index % 64));
    assert.deepEqual([...bare.read(out, new Float32Array(128))], expected, order);
  }
});
