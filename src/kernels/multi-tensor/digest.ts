/**
 * Digests of memory on CUDA: 64 bits for each chunk of a storage. They show whether two runs left the same bytes, without reading the
 * memory back. A digest is the sum of mixed words, each mixed with its position, so that its bits do not depend on the order of threads.
 */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";

const threads = 256;

const digestParameters = {
  data: "in",
  digests: "out",
  chunks: "u32",
  chunkBytes: "u32",
  lastBytes: "u32",
} as const;

/** A launch that writes the digest of each chunk of `data` to `digests`, 8 bytes each. The last chunk may be shorter. */
export function lowerDigestsOnCuda(data: Storage, chunkBytes: number, digests: Storage): LaunchCommand {
  const chunks = Math.ceil(data.span.size / chunkBytes);
  const lastBytes = data.span.size - (chunks - 1) * chunkBytes;
  return {
    ...{ kind: "launch", op: "digests of memory", blocks: chunks },
    source: cachedSource("digests", printDigests),
    arguments: argumentsInOrder(digestParameters, { data, digests, chunks, chunkBytes, lastBytes }),
  };
}

const printDigests = (): KernelSource =>
  cudaKernel({
    name: "digests",
    parameters: digestParameters,
    elements: "unsigned char",
    pointers: { digests: "unsigned long long" },
    threads,
    declarations: `
static __device__ __forceinline__ unsigned long long mix(unsigned value, unsigned position) {
  unsigned long long x = (unsigned long long)position << 32 | value;
  x = (x ^ x >> 32) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
  return x ^ x >> 32;
}`,
    body: `
  __shared__ unsigned long long sums[${threads}];
  const unsigned char* const chunk = data + (unsigned long long)blockIdx.x * chunkBytes;
  const unsigned size = blockIdx.x + 1 == chunks ? lastBytes : chunkBytes;
  const unsigned vectors = reinterpret_cast<unsigned long long>(chunk) % 16 == 0 ? size / 16 : 0;
  unsigned long long sum = 0;
#pragma unroll 4
  for (unsigned index = threadIdx.x; index < vectors; index += ${threads}) {
    const uint4 words = reinterpret_cast<const uint4*>(chunk)[index];
    sum += mix(words.x, 4 * index) + mix(words.y, 4 * index + 1) + mix(words.z, 4 * index + 2) + mix(words.w, 4 * index + 3);
  }
  // The bytes after the last vector, or all bytes of unaligned memory.
  for (unsigned index = 16 * vectors + threadIdx.x; index < size; index += ${threads}) sum += mix(chunk[index], ~index);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned step = ${threads / 2}; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) digests[blockIdx.x] = sums[0];`,
  });
