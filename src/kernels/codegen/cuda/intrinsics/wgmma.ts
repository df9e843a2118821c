/** The machine's instructions of products by warpgroups, by the names that our kernels use; whoever emulates the machine brings its own. */

import {
  isMmaSyncMainloop,
  isRsMainloop,
  type Sm90Config,
  type WarpgroupElement,
  widthOf,
} from "../../../gemm/sm90/configs.js";
import { warpInstructions } from "../../../gemm/sm90/mainloop-mma-sync.js";
import { registerInstructions } from "../../../gemm/sm90/mainloop-rs.js";
import { preludeOf } from "../prelude.js";
import { tmaIntrinsics } from "./tma.js";

/** By the name of each: what it is called in instructions, and how many terms one takes. */
export const elements: Readonly<Record<WarpgroupElement, { name: string; terms: number }>> = {
  bf16: { name: "Bf16", terms: 16 },
  f16: { name: "F16", terms: 16 },
  tf32: { name: "Tf32", terms: 8 },
};

export function instructionsFor(form: Sm90Config): string {
  return `
${preludeOf(new Set(["dynamicSharedMemory"]))}#ifndef HOLDFAST_INSTRUCTIONS
struct Bf16 { static constexpr unsigned bytes = 2; };
struct F16 { static constexpr unsigned bytes = 2; };
struct Tf32 { static constexpr unsigned bytes = 4; };
// Where it stands: a float that is being loaded is there behind it.
template <class Float>
static __device__ __forceinline__ Float roundToTf32(Float value) {
  unsigned bits;
  asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}
${isMmaSyncMainloop(form) ? warpInstructions : warpgroupInstructions(form)}
${tmaIntrinsics}
#endif`;
}

function warpgroupInstructions(form: Sm90Config): string {
  const width = widthOf(form.tile);
  return `// Where a tile lies and how far it is to the next rows and terms of it; swizzled by 128 bytes.
static __device__ __forceinline__ unsigned long long smemDescriptor(const unsigned char* tile, unsigned across) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(tile);
  return (unsigned long long)((place & 0x3ffffu) >> 4) | (unsigned long long)(across >> 4) << 16 |
         (unsigned long long)(1024u >> 4) << 32 | 1ull << 62;
}
${isRsMainloop(form) ? registerInstructions(width) : tileInstructions(form.element, width)}
// Nothing that sets a sum is moved behind this: between products it would make each wait for the last.
static __device__ __forceinline__ void settle(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
static __device__ __forceinline__ void wgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void wgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until no more than so many groups of products are being made.
template <unsigned left>
static __device__ __forceinline__ void wgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}
// Lets the tensor cores see what this thread has stored, once it is behind a barrier.
static __device__ __forceinline__ void fenceProxyAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }`;
}

/** Instructions that only products of two tiles know of. */
function tileInstructions(element: WarpgroupElement, width: number): string {
  const { terms } = elements[element];
  const sums = Array.from({ length: width / 2 }, (_, index) => index);
  const places = sums.map((index) => `%${index}`).join(", ");
  const operands = sums.map((index) => `"+f"(sums[${index}])`).join(", ");
  const [left, right] = [sums.length, sums.length + 1];
  // Floats can't be turned on their way to the tensor cores.
  const turns = element === "tf32" ? "" : `, %${right + 1}, %${right + 2}`;
  const turned = element === "tf32" ? "" : `, "n"(!isAKMajor), "n"(!isBKMajor)`;
  return `// sums[64, columns] += left[64, 32 bytes] · right[32 bytes, columns], spread over four warps; begins it and goes on.
template <class Element, unsigned columns, bool isAKMajor, bool isBKMajor>
static __device__ __forceinline__ void multiplyTiles(
    float (&sums)[columns / 2], const unsigned char* left, const unsigned char* right) {
  asm volatile(
      "{\\n.reg .pred adds;\\nsetp.eq.u32 adds, 0, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n${width}k${terms}.f32.${element}.${element} {${places}}, %${left}, %${right}, adds, 1, 1${turns};\\n}"
      : ${operands}
      : "l"(smemDescriptor(left, isAKMajor ? 16 : 8192)), "l"(smemDescriptor(right, isBKMajor ? 16 : 8192))${turned});
}
// Waits for so many threads of the block at a barrier of that number.
static __device__ __forceinline__ void namedBarrierSync(unsigned barrier, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}`;
}
