/**
 * Sums of floats whose terms lie apart in both operands, by warpgroups: A goes through registers, in whose layout its terms may lie
 * apart, and four warps do nothing but turn B round, so that its terms lie side by side in shared memory. The two blocks of a cluster
 * have half of the terms each, and each adds up half of the sums: a product has few tiles this large, and many terms.
 * B's floats are rounded to TF32 as they are turned; of A's the tensor cores leave out what TF32 has not, as rounding them took longer.
 */

import type { WarpgroupTile } from "./configs.js";

/** Threads that multiply, and threads that bring and turn: a warp for each 32 columns of B. */
const [consumers, turners] = [256, 128];

export const rsThreads = consumers + turners;

/** How many tiles of B that have been turned round there are. */
const readyStages = 2;

/** Tiles and gates, and room to begin on 1024 bytes. */
export function rsBytes({ rows, columns, stages }: WarpgroupTile): number {
  const gates = stages + 2 * readyStages + (turners / 32) * stages;
  return 1024 + stages * (rows + columns) * 128 + readyStages * columns * 128 + 8 * gates;
}

/** A block begins with 168 registers a thread; those that turn can spare some. Together no more than there were. */
const [registersToMultiply, registersToTurn] = [208, 88];

/** Instructions that only this multiplication knows of. */
export function registerInstructions(columns: number): string {
  const sums = Array.from({ length: columns / 2 }, (_, index) => index);
  const places = sums.map((index) => `%${index}`).join(", ");
  const operands = sums.map((index) => `"+f"(sums[${index}])`).join(", ");
  const left = [0, 1, 2, 3].map((index) => `%${sums.length + index}`).join(", ");
  const right = sums.length + 4;
  return `// sums[64, columns] += left[64, 8] · right[8, columns], the left side in registers of four warps; begins it and goes on.
template <unsigned columns>
static __device__ __forceinline__ void multiplyRs(float (&sums)[columns / 2], const float (&left)[4], const unsigned char* right) {
  asm volatile(
      "{\\n.reg .pred adds;\\nsetp.eq.u32 adds, 0, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n${columns}k8.f32.tf32.tf32 {${places}}, {${left}}, %${right}, adds, 1, 1;\\n}"
      : ${operands}
      : "r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])), "r"(__float_as_uint(left[2])),
        "r"(__float_as_uint(left[3])), "l"(smemDescriptor(right, 16)));
}
// From here on the threads of a warpgroup have so many registers: fewer than before, or more, once others have given some.
template <unsigned count>
static __device__ __forceinline__ void setmaxnregDec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }
template <unsigned count>
static __device__ __forceinline__ void setmaxnregInc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }
// Where a peer in the cluster has in its shared memory what lies at this place in one's own.
template <class T>
static __device__ __forceinline__ T* mapaShared(T* own, unsigned rank) {
  unsigned long long place;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(own), "r"(rank));
  return reinterpret_cast<T*>(place);
}
static __device__ __forceinline__ void arriveInCluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
static __device__ __forceinline__ void clusterSync() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }`;
}

/** Before a block knows which tile is its own: which half of the terms. */
export const sharingOfTerms = `
  const unsigned half = block % 2;
  block /= 2;`;

/** Gates, and the warps that bring and turn. */
const turning = `
  unsigned char* const raw = tiles + stages * Left::bytes;
  unsigned char* const ready = raw + stages * Right::bytes;
  Gate* const fullA = reinterpret_cast<Gate*>(ready + ${readyStages} * Right::bytes);
  Gate* const readyFull = fullA + stages;
  Gate* const readyFree = readyFull + ${readyStages};
  // A turning warp waits for its own boxes only.
  Gate* const rawFull = readyFree + ${readyStages} + threadIdx.x % ${turners} / 32 * stages;
  const unsigned allSteps = (k + depth - 1) / depth, firstStep = half * ((allSteps + 1) / 2);
  const unsigned steps = half == 0 ? (allSteps + 1) / 2 : allSteps - firstStep;
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < stages; stage++) mbarrierInit(fullA + stage, ${turners / 32});
    for (unsigned stage = 0; stage < ${readyStages}; stage++) {
      mbarrierInit(readyFull + stage, ${turners / 32});
      mbarrierInit(readyFree + stage, consumers / 32);
    }
    for (unsigned gate = 0; gate < ${turners / 32} * stages; gate++) mbarrierInit(rawFull + gate, 1);
  }
  fenceMbarrierInit();
  __syncthreads();
  gridDependencyWait();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  if (threadIdx.x >= consumers) {
    setmaxnregDec<${registersToTurn}>();
    auto loadA = [&](unsigned step) {
      if (step >= steps) return;
      Gate* const gate = fullA + step % stages;
      mbarrierArriveExpectTx(gate, Left::bytes / ${turners / 32});
#pragma unroll
      for (unsigned box = warp; box < tileRows / 32; box += ${turners / 32}) {
        tmaLoad(tiles + step % stages * Left::bytes + box * Left::boxBytes, a, firstRow + box * 32, (firstStep + step) * depth,
                 aBatch == 0 ? 0 : product, gate);
      }
    };
    auto bringRaw = [&](unsigned step) {
      if (step >= steps) return;
      Gate* const gate = rawFull + step % stages;
      mbarrierArriveExpectTx(gate, Right::boxBytes);
      tmaLoad(raw + step % stages * Right::bytes + warp * Right::boxBytes, b, firstColumn + warp * 32, (firstStep + step) * depth,
               bBatch == 0 ? 0 : product, gate);
    };
    if (lane == 0) {
#pragma unroll 1
      for (unsigned step = 0; step < stages; step++) {
        bringRaw(step);
        loadA(step);
      }
    }
    __syncwarp();
    // A thread has four columns from 4 · chunk on, of the terms from 4 · four on and of those from 4 · (four ^ 4) on. So eight
    // neighbours load from different banks, and store to different ones.
    const unsigned chunk = lane % 8, four = chunk ^ lane / 8;
#pragma unroll 1
    for (unsigned step = 0; step < steps; step++) {
      float4 terms[2][4];
      mbarrierWait(rawFull + step % stages, step / stages % 2);
      const unsigned char* const from = raw + step % stages * Right::bytes + warp * Right::boxBytes;
#pragma unroll
      for (unsigned i = 0; i < 8; i++)
        terms[i / 4][i % 4] = *reinterpret_cast<const float4*>(from + Right::placeOf(4 * (four ^ i / 4 * 4) + i % 4, chunk));
      // What stands in registers makes room for what comes next. It is rounded here because it stands there by then: a load that is
      // still under way would read what comes next.
#pragma unroll
      for (unsigned i = 0; i < 8; i++) {
        float4& own = terms[i / 4][i % 4];
        own = make_float4(roundToTf32(own.x), roundToTf32(own.y), roundToTf32(own.z), roundToTf32(own.w));
      }
      __syncwarp();
      if (lane == 0) bringRaw(step + stages);
      if (step >= ${readyStages}) mbarrierWait(readyFree + step % ${readyStages}, (step / ${readyStages} - 1) % 2);
      unsigned char* const to = ready + step % ${readyStages} * Right::bytes + warp * Right::boxBytes;
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        auto store = [&](unsigned e, float x, float y, float z, float w) {
          *reinterpret_cast<float4*>(to + Right::placeOf(4 * chunk + e, four ^ i * 4)) = make_float4(x, y, z, w);
        };
        store(0, terms[i][0].x, terms[i][1].x, terms[i][2].x, terms[i][3].x);
        store(1, terms[i][0].y, terms[i][1].y, terms[i][2].y, terms[i][3].y);
        store(2, terms[i][0].z, terms[i][1].z, terms[i][2].z, terms[i][3].z);
        store(3, terms[i][0].w, terms[i][1].w, terms[i][2].w, terms[i][3].w);
      }
      fenceProxyAsync();
      __syncwarp();
      if (lane == 0) {
        mbarrierArrive(readyFull + step % ${readyStages});
        // Who has multiplied by a tile of B had that step's rows of A in registers: both places are free.
        if (step >= ${readyStages}) loadA(step + stages - ${readyStages});
      }
    }
    // The cluster's barriers, at which the others exchange their sums, are for all threads.
    __syncwarp();
    for (unsigned barrier = 0; barrier < 2; barrier++) {
      arriveInCluster();
      clusterSync();
    }
    return;
  }`;

/**
 * A warpgroup has 128 rows, in two products of 64. A lane's rows of each are two neighbours, which it loads at once: of its warp's 32
 * columns of a box those of four chunks of 16 bytes, such that half a warp loads from different banks. While products of the first
 * half of a step's terms are made, the second half is loaded, and the other way round.
 */
const multiplying = `
  setmaxnregInc<${registersToMultiply}>();
  const unsigned group = lane / 4, member = lane % 4, chunk = warp % 2 * 2 + group / 4 + group / 2 % 2 * 4;
  const unsigned top = threadIdx.x / 128 * 128 + warp / 2 * 32;
  const unsigned char* const own = tiles + top / 32 * Left::boxBytes + group % 2 * 8;
  const unsigned char* const places[2] = {own + Left::placeOf(member, chunk), own + Left::placeOf(member + 4, chunk)};
  float sums[2][tileColumns / 2], first[2][2][4], second[2][2][4];
#pragma unroll
  for (unsigned i = 0; i < tileColumns; i++) {
    sums[i / (tileColumns / 2)][i % (tileColumns / 2)] = 0;
    settle(sums[i / (tileColumns / 2)][i % (tileColumns / 2)]);
  }
  auto load = [&](float (&rows)[2][2][4], unsigned step, unsigned part) {
    const unsigned from = step % stages * Left::bytes + part * 1024;
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
      const float2 pair =
          *reinterpret_cast<const float2*>(places[i % 2] + from + i / 4 * (2 * Left::boxBytes) + i / 2 % 2 * 1024);
      rows[i / 4][i / 2 % 2][i % 2 * 2] = pair.x;
      rows[i / 4][i / 2 % 2][i % 2 * 2 + 1] = pair.y;
    }
  };
  auto multiply = [&](const float (&rows)[2][2][4], unsigned step, unsigned part) {
    wgmmaFence();
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      multiplyRs<tileColumns>(
          sums[i % 2], rows[i % 2][i / 2], Right::at(ready + step % ${readyStages} * Right::bytes, 0, part + i / 2));
    }
    wgmmaCommit();
  };
#pragma unroll 1
  for (unsigned step = 0; step < steps; step++) {
    mbarrierWait(fullA + step % stages, step / stages % 2);
    load(first, step, 0);
    mbarrierWait(readyFull + step % ${readyStages}, step / ${readyStages} % 2);
    multiply(first, step, 0);
    // With the last step's products made, its tile is free.
    wgmmaWait<1>();
    __syncwarp();
    if (step > 0 && lane == 0) mbarrierArrive(readyFree + (step - 1) % ${readyStages});
    load(second, step, 2);
    multiply(second, step, 2);
    wgmmaWait<1>();
  }
  wgmmaWait<0>();
#pragma unroll
  for (unsigned i = 0; i < tileColumns; i++) settle(sums[i / (tileColumns / 2)][i % (tileColumns / 2)]);`;

/**
 * Each block adds up 64 of a warpgroup's rows, and gets what the other one has of them where its tiles were, which both have done
 * with by then. A sum of two is the same in either order.
 */
const storing = `
  auto kept = [&](unsigned e) { return half == 0 ? sums[0][e] : sums[1][e]; };
  auto passed = [&](unsigned e) { return half == 0 ? sums[1][e] : sums[0][e]; };
  arriveInCluster();
  clusterSync();
  float4* const given = reinterpret_cast<float4*>(tiles) + threadIdx.x;
  float4* const sent = mapaShared(given, half ^ 1);
#pragma unroll
  for (unsigned e = 0; e < tileColumns / 2; e += 4)
    sent[e / 4 * consumers] = make_float4(passed(e), passed(e + 1), passed(e + 2), passed(e + 3));
  arriveInCluster();
  clusterSync();
  const int row = firstRow + (int)(top + 64 * half + 4 * chunk + group % 2 * 2);
  float* const to = c + product * cBatch + (long long)row * cStride + firstColumn + 2 * member;
#pragma unroll
  for (unsigned e = 0; e < tileColumns / 2; e += 4) {
    if (firstColumn + (int)(2 * e) >= n) break;
    const float4 other = given[e / 4 * consumers];
    if (row < m) *reinterpret_cast<float2*>(to + 2 * e) = make_float2(kept(e) + other.x, kept(e + 1) + other.y);
    if (row + 1 < m)
      *reinterpret_cast<float2*>(to + cStride + 2 * e) = make_float2(kept(e + 2) + other.z, kept(e + 3) + other.w);
  }`;

export const rsBody = `${turning}\n${multiplying}\n${storing}`;
