/** wgmma: asynchronous matrix multiply-accumulate of a warpgroup, with A from shared memory (SS) or from registers (RS). */

/** The element types of operands; accumulators are f32. */
export type MmaElement = "bf16" | "f16" | "tf32";

/** By element: the C++ tag type in the kernels, and K of one instruction (32 bytes). */
export const mmaElements: Readonly<Record<MmaElement, { readonly type: string; readonly k: number }>> = {
  bf16: { type: "Bf16", k: 16 },
  f16: { type: "F16", k: 16 },
  tf32: { type: "Tf32", k: 8 },
};

/** C++: the tag types. */
export const elementTags = `struct Bf16 { static constexpr unsigned bytes = 2; };
struct F16 { static constexpr unsigned bytes = 2; };
struct Tf32 { static constexpr unsigned bytes = 4; };`;

/** The shared memory descriptor of a tile in the 128-byte swizzle, whose 8-row groups are 1024 bytes apart. */
export const smemDescriptor = `static __device__ __forceinline__ unsigned long long smemDescriptor(const unsigned char* tile, unsigned leadingBytes) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(tile);
  return (unsigned long long)((address & 0x3ffffu) >> 4) | (unsigned long long)(leadingBytes >> 4) << 16 |
         (unsigned long long)(1024u >> 4) << 32 | 1ull << 62;
}`;

/**
 * Tiles in the 128-byte swizzle by their address in units of 16 bytes, so that a loop only adds to it. In a cluster, an address in shared
 * memory has the rank of its CTA above its lower 18 bits. In a descriptor that would change the leading byte offset.
 */
export const tileAddress = `typedef unsigned TileAddress;
static __device__ __forceinline__ TileAddress tileAddress(const unsigned char* tile) {
  return ((unsigned)__cvta_generic_to_shared(tile) & 0x3ffffu) >> 4;
}
static __device__ __forceinline__ TileAddress advance(TileAddress address, unsigned bytes) { return address + bytes / 16; }`;

/** The shared memory descriptor of a tile. Its high half is constant: 8-row groups are 1024 bytes apart. */
const tileDescriptor = `static __device__ __forceinline__ unsigned long long tileDescriptor(TileAddress address, unsigned leadingBytes) {
  return (unsigned long long)(address + (leadingBytes >> 4 << 16)) | (unsigned long long)(1024u >> 4 | 1u << 30) << 32;
}`;

/** The asm operands of n / 2 accumulators: their placeholders, their constraints, and the number of the next operand. */
function accumulators(n: number): {
  readonly placeholders: string;
  readonly constraints: string;
  readonly next: number;
} {
  const indices = Array.from({ length: n / 2 }, (_, index) => index);
  return {
    placeholders: indices.map((index) => `%${index}`).join(", "),
    constraints: indices.map((index) => `"+f"(acc[${index}])`).join(", "),
    next: indices.length,
  };
}

/** Both operands from shared memory. Needs `tileAddress`. Only 16-bit elements can be MN-major: TF32 tiles are K-major. */
export function wgmmaSs(element: MmaElement, n: number): string {
  const { placeholders, constraints, next } = accumulators(n);
  const isTf32 = element === "tf32";
  const transposes = isTf32 ? "" : `, %${next + 3}, %${next + 4}`;
  const transposeOperands = isTf32 ? "" : `, "n"(!isAKMajor), "n"(!isBKMajor)`;
  return `${tileDescriptor}
// acc[64, n] (+)= a[64, 32 bytes] · b[32 bytes, n], distributed over four warps. Asynchronous.
template <class Element, unsigned n, bool isAKMajor, bool isBKMajor>
static __device__ __forceinline__ void wgmmaSs(
    float (&acc)[n / 2], TileAddress a, TileAddress b, bool accumulates = true) {
  asm volatile(
      "{\\n.reg .pred scaleD;\\nsetp.ne.u32 scaleD, %${next + 2}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n${n}k${mmaElements[element].k}.f32.${element}.${element} {${placeholders}}, %${next}, %${next + 1}, scaleD, 1, 1${transposes};\\n}"
      : ${constraints}
      : "l"(tileDescriptor(a, isAKMajor ? 16 : 8192)), "l"(tileDescriptor(b, isBKMajor ? 16 : 8192)), "r"((unsigned)accumulates)${transposeOperands});
}`;
}

/** TF32 with A from registers, whose fragment layout allows an MN-major A. */
export function wgmmaRs(n: number): string {
  const { placeholders, constraints, next } = accumulators(n);
  const a = [0, 1, 2, 3].map((index) => `%${next + index}`).join(", ");
  return `// acc[64, n] += a[64, 8] · b[8, n], with A in registers of four warps. Asynchronous.
template <unsigned n>
static __device__ __forceinline__ void wgmmaRs(float (&acc)[n / 2], const float (&a)[4], const unsigned char* b) {
  asm volatile(
      "{\\n.reg .pred scaleD;\\nsetp.eq.u32 scaleD, 0, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n${n}k8.f32.tf32.tf32 {${placeholders}}, {${a}}, %${next + 4}, scaleD, 1, 1;\\n}"
      : ${constraints}
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "l"(smemDescriptor(b, 16)));
}`;
}

/** Operands of the wgmma functions of 16-bit elements: descriptors of swizzled tiles, which can be advanced. */
const smemOperand = `typedef unsigned long long SmemOperand;
// \`leadingBytes\`: between blocks of 64 columns of an MN-major tile.
static __device__ __forceinline__ SmemOperand smemOperand(const unsigned char* tile, unsigned leadingBytes = 16) {
  return smemDescriptor(tile, leadingBytes);
}
static __device__ __forceinline__ SmemOperand advance(SmemOperand operand, unsigned bytes) { return operand + (bytes >> 4); }`;

/** wgmma of 16-bit elements: SS and RS, for each of these n. Needs `smemDescriptor`. */
export function wgmmaHalves(element: "bf16" | "f16", sizes: readonly number[]): string {
  const of = (n: number, a: (next: number) => string, end: (next: number) => string): string => {
    const { placeholders, constraints, next } = accumulators(n);
    return `if constexpr (n == ${n}) asm volatile(
      "{\\n.reg .pred scaleD;\\nsetp.ne.u32 scaleD, %${next}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n${n}k16.f32.${element}.${element} {${placeholders}}, ${a(next + 1)}, scaleD, 1, 1, ${end(next)};\\n}"
      : ${constraints}
      : "r"((unsigned)accumulates), `;
  };
  const ss = sizes.map(
    (n) =>
      `${of(
        n,
        (a) => `%${a}, %${a + 1}`,
        (next) => `%${next + 3}, %${next + 4}`,
      )}"l"(a), "l"(b), "n"(!isAKMajor), "n"(!isBKMajor));`,
  );
  const rs = sizes.map(
    (n) =>
      `${of(
        n,
        (a) => `{%${a}, %${a + 1}, %${a + 2}, %${a + 3}}, %${a + 4}`,
        (next) => `%${next + 6}`,
      )}"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(!isBKMajor));`,
  );
  return `${smemOperand}
// acc[64, n] (+)= a[64, 16] · b[16, n], distributed over four warps. Asynchronous.
template <class Element, unsigned n, bool isAKMajor = true, bool isBKMajor = true>
static __device__ __forceinline__ void wgmmaSs(float (&acc)[n / 2], SmemOperand a, SmemOperand b, bool accumulates) {
  ${ss.join("\n  ")}
}
// The same with A in registers of four warps.
template <class Element, unsigned n, bool isBKMajor = false>
static __device__ __forceinline__ void wgmmaRs(float (&acc)[n / 2], const unsigned (&a)[4], SmemOperand b, bool accumulates) {
  ${rs.join("\n  ")}
}`;
}

/** Fences and commit groups. */
export const wgmmaGroups = `// Compiler fence on an accumulator: keeps its initialisation out of the wgmma sequence, which would otherwise be serialised.
static __device__ __forceinline__ void fenceOperand(float& acc) { asm volatile("" : "+f"(acc)::"memory"); }
static __device__ __forceinline__ void wgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void wgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most \`pending\` commit groups are in flight.
template <unsigned pending>
static __device__ __forceinline__ void wgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}`;

/** The fence after ordinary stores. */
export const fenceProxyAsync = `// Makes this thread's shared memory stores visible to the async proxy (wgmma, TMA), once a barrier follows.
static __device__ __forceinline__ void fenceProxyAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }`;

export const wgmmaSync = `${wgmmaGroups}
${fenceProxyAsync}`;

/** bar.sync of some of a CTA's threads. */
export const namedBarrierSync = `static __device__ __forceinline__ void namedBarrierSync(unsigned barrier, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}`;

/** setmaxnreg: producer warpgroups give registers to consumer warpgroups. */
export const setmaxnreg = `template <unsigned count>
static __device__ __forceinline__ void setmaxnregDec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }
template <unsigned count>
static __device__ __forceinline__ void setmaxnregInc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }`;

/**
 * C++: the position of a warpgroup in a CTA tile, and its accumulators: `mmaM` blocks of 64 × `mmaN`, which are zero. The shuffle tells
 * the compiler that a warp's threads agree, so that it computes descriptors in uniform registers.
 */
export const zeroAccumulators = `  const unsigned warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const unsigned warpgroupM = warpgroup / warpgroupsN * (64 * mmaM), warpgroupN = warpgroup % warpgroupsN * mmaN;
  float acc[mmaM][mmaN / 2];
#pragma unroll
  for (unsigned i = 0; i < mmaM; i++) {
#pragma unroll
    for (unsigned e = 0; e < mmaN / 2; e++) {
      acc[i][e] = 0;
      fenceOperand(acc[i][e]);
    }
  }`;
