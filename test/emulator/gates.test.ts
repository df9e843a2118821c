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
        const float* from = given + (blockIdx.x * ${rounds} + round) * 128;
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
  const [given, out] = [bare.put(tiles), bare.put(new Float32Array(4 * 128))];
  const [status, text] = kernels.run(ringShape, "const float* given, float* out", body, [given, out]);
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
  const [status, , sums] = runRing(ring(add + awaitFull, awaitEmpty));
  assert.equal(status, 0);
  assert.ok(sums.every(Number.isNaN));
});

test("a tile that is overwritten before others have consumed it is detected", { skip }, () => {
  const [status, , sums] = runRing(ring(awaitFull + add, "if (parity > 1) return;"));
  assert.notDeepEqual([status, sums], [0, ringSums]);
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
    const wanted = Array.from({ length: 2 * 192 }, (_, index) => {
      const group = Math.floor((index % 96) / 32);
      const id = Math.floor((index % 192) / 96) * 32 + (index % 32);
      const times = group < 2 ? 2 + 3 * group : 0;
      return 64 * group + ((id + 33 * times) % 64) + times;
    });
    assert.deepEqual([...bare.read(out, new Uint32Array(2 * 192))], wanted);
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
    name: "a gate that nobody passes",
    body: `Mbarrier* gate = reinterpret_cast<Mbarrier*>(memory);
      if (threadIdx.x == 0) mbarrierInit(gate, 2);
      __syncthreads();
      if (blockIdx.x == 1 && threadIdx.x < 32) { if (threadIdx.x == 5) mbarrierArriveExpectTx(gate, 64); mbarrierWait(gate, 0); }`,
    told: "32 of 64 threads of block 1 wait at a gate that lacks 1 of 2 arrivals and 64 bytes in line 6",
  },
  {
    name: "a cluster's barrier that one thread does not reach",
    body: "if (blockIdx.x == 1 && threadIdx.x == 9) return;\nclusterArrive();\nclusterWait(); memory[0] = 1;",
    told:
      "64 of 64 threads of block 0 wait at the cluster's barrier, to which 127 of 128 have come, in line 5; " +
      "63 of 64 threads of block 1 wait at the cluster's barrier, to which 127 of 128 have come, in line 5",
  },
  {
    name: "a numbered barrier with too few",
    body: "if (blockIdx.x == 0 && threadIdx.x < 32) namedBarrierSync(3, 64); memory[0] = 1;",
    told: "32 of 64 threads of block 0 wait at barrier 3, to which 32 of 64 have come, in line 3",
  },
  {
    name: "a block's barrier that one thread does not reach",
    body: "if (threadIdx.x != 9 || blockIdx.x != 1) __syncthreads(); memory[0] = 1;",
    told: "63 of 64 threads of block 1 wait at the block's barrier in line 3",
  },
  {
    name: "a gate that was late",
    body: `Mbarrier* gate = reinterpret_cast<Mbarrier*>(memory);
      if (threadIdx.x == 0) mbarrierInit(gate, 1);
      __syncthreads();
      if (blockIdx.x == 0 && threadIdx.x == 0) mbarrierWait(gate, 0);
      if (blockIdx.x == 0 && threadIdx.x == 1) { mbarrierArrive(gate); mbarrierArrive(gate); }`,
    told: "1 of 64 threads of block 0 wait at a gate that lacks 1 of 1 arrivals and 0 bytes in line 6",
  },
];
for (const { name, body, told } of stalls) {
  test(`a deadlock is detected: ${name}`, { skip }, () => {
    assert.deepEqual(kernels.run({ blocks: 2, threads: 64, cluster: 2 }, "", body, []), [
      launchFailed,
      `hf: nobody can go on; ${told}`,
    ]);
  });
}

const misuses: readonly { name: string; body: string; status: number; told: RegExp }[] = [
  {
    name: "an unset gate",
    body: "mbarrierArrive(gate);",
    status: launchFailed,
    told: /a gate that was not set in line 4/,
  },
  {
    name: "an odd gate",
    body: "mbarrierInit((Mbarrier*)(memory + 4), 1);",
    status: misaligned,
    told: /a gate at a misaligned/,
  },
  {
    name: "a gate in device memory",
    body: "mbarrierInit((Mbarrier*)given, 1);",
    status: illegalAddress,
    told: /a gate outside launched memory/,
  },
  {
    name: "a wait at a peer's gate",
    body: "mbarrierInit(gate, 1); mbarrierWait(mapaShared(gate, 1), 0);",
    status: illegalAddress,
    told: /a gate of a peer/,
  },
  {
    name: "an arrival too many",
    body: "mbarrierInit(gate, 1); mbarrierArriveExpectTx(gate, 16); mbarrierArrive(gate);",
    status: launchFailed,
    told: /more arrivals at a gate than its phase takes/,
  },
  {
    name: "a cluster's barrier without arrival",
    body: "clusterWait();",
    status: launchFailed,
    told: /waits for its cluster and did not arrive/,
  },
  {
    name: "a cluster's barrier without wait",
    body: "clusterArrive(); clusterArrive();",
    status: launchFailed,
    told: /arrives in its cluster twice/,
  },
  { name: "barrier 0", body: "namedBarrierSync(0, 32);", status: launchFailed, told: /not one of 1 to 15/ },
  {
    name: "a barrier for 40",
    body: "namedBarrierSync(1, 40);",
    status: launchFailed,
    told: /a barrier for 40 threads/,
  },
];
for (const { name, body, status, told } of misuses) {
  test(`a fault is reported with its line: ${name}`, { skip }, () => {
    const whole = `Mbarrier* gate = reinterpret_cast<Mbarrier*>(memory);\n${body}\nif (given == 0) mbarrierArrive(gate);`;
    const shape = { blocks: 2, threads: 32, cluster: 2 };
    const [found, text] = kernels.run(shape, "const float* given", whole, [bare.allocate(256)]);
    assert.equal(found, status);
    assert.match(text, told);
    assert.match(text, /in line 4, block 0, thread 0$/);
  });
}

test("a bulk copy has a multiple of 16 aligned bytes, from device memory to the block's own shared memory", {
  skip,
}, () => {
  const shape = { blocks: 2, threads: 1, cluster: 2 };
  const bring = (to: string, from: string, bytes: number): [number, string] => {
    const body = `Mbarrier* gate = reinterpret_cast<Mbarrier*>(memory);
      mbarrierInit(gate, 1);
      mbarrierArriveExpectTx(gate, ${bytes});
      cpAsyncBulk(${to}, ${from}, ${bytes}, gate);
      mbarrierWait(gate, 0);
      clusterArrive();
      clusterWait();`;
    emulator.reset();
    return kernels.run(shape, "const float* given", body, [bare.put(new Float32Array(64))]);
  };
  assert.deepEqual(bring("memory + 16", "given + 4", 32), [0, ""]);
  const odd = "hf: a copy at a misaligned address in line 6, block 0, thread 0";
  assert.deepEqual(bring("memory + 24", "given", 32), [misaligned, odd]);
  assert.deepEqual(bring("memory + 16", "given + 1", 32), [misaligned, odd]);
  assert.deepEqual(bring("memory + 16", "given", 24), [misaligned, odd]);
  const stray = "hf: a copy that does not go to the block's launched memory in line 6, block 0, thread 0";
  assert.deepEqual(bring("memory + 1008", "given", 32), [illegalAddress, stray]);
  assert.deepEqual(bring("mapaShared(memory + 16, 1)", "given", 32), [illegalAddress, stray]);
  assert.equal(bring("memory + 16", "given ? (const float*)(memory + 64) : given", 32)[0], illegalAddress);
});

test("a block that ends before its copies complete is detected, if they are late", { skip }, () => {
  setOrder("reversed");
  const body = `Mbarrier* gate = reinterpret_cast<Mbarrier*>(memory);
    mbarrierInit(gate, 1);
    mbarrierArriveExpectTx(gate, 32);
    cpAsyncBulk(memory + 16, given, 32, gate);`;
  const given = [bare.put(new Float32Array(64))];
  const [status, text] = kernels.run(
    { blocks: 2, threads: 1, cluster: 2 },
    "const float* given",
    body,
    given,
  );
  assert.equal(status, launchFailed);
  assert.match(text, /a block that ended before a copy had come/);
});

test("mbarriers and numbered barriers work in a kernel without clusters", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(96) hf(const float* given, float* out) {
       dynamicSharedMemory(memory, 1024);
       Mbarrier* gate = reinterpret_cast<Mbarrier*>(memory);
       float* tile = reinterpret_cast<float*>(memory + 16);
       if (threadIdx.x == 0) mbarrierInit(gate, 1);
       __syncthreads();
       if (threadIdx.x == 95) {
         mbarrierArriveExpectTx(gate, 256);
         cpAsyncBulk(tile, given + 64 * blockIdx.x, 256, gate);
       }
       if (threadIdx.x < 64) {
         mbarrierWait(gate, 0);
         namedBarrierSync(4, 64);
         out[64 * blockIdx.x + threadIdx.x] = tile[63 - threadIdx.x];
       }
     }`,
    "hf",
  );
  const given = Float32Array.from({ length: 128 }, (_, index) => index);
  for (const order of orders) {
    setOrder(order);
    const out = bare.allocate(512);
    bare.launch(entry, 2, 96, [bare.put(given), out], 0, 1024);
    const wanted = Array.from({ length: 128 }, (_, index) => (index < 64 ? 63 : 127) - (index % 64));
    assert.deepEqual([...bare.read(out, new Float32Array(128))], wanted, order);
  }
});
