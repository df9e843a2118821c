/**
 * The device functions that printed kernels call, as CUDA C++. A kernel's code holds those that it uses and no others,
 * as every line costs the compiler time. They mean what WebAssembly means: the least of two numbers is NaN where one is,
 * and −0 is below 0; whole numbers wrap round; floats become whole numbers by cutting off, held inside their range.
 */

interface PreludeEntry {
  readonly needs?: readonly string[];
  readonly code: string;
}

const device = "static __device__ __forceinline__";

/** Of equal numbers, which may be zeros, the bits tell: either sign makes the least −0, both make the largest −0. */
function extreme(op: "min" | "max", type: "f32" | "f64"): PreludeEntry {
  const real = type === "f32" ? "float" : "double";
  const [fromBits, bits] =
    type === "f32"
      ? ["__uint_as_float", "__float_as_uint"]
      : ["__longlong_as_double", "__double_as_longlong"];
  return {
    code: `${device} ${real} ${op}_${type}(${real} a, ${real} b) {
  if (a != a || b != b) return a + b;
  if (a == b) return ${fromBits}(${bits}(a) ${op === "min" ? "|" : "&"} ${bits}(b));
  return a ${op === "min" ? "<" : ">"} b ? a : b;
}`,
  };
}

function extremeOfIntegers(op: "min" | "max"): PreludeEntry {
  return {
    code: `${device} int ${op}_i32(int a, int b) { return a ${op === "min" ? "<" : ">"} b ? a : b; }`,
  };
}

function truncate(type: "f32" | "f64"): PreludeEntry {
  const [real, suffix] = type === "f32" ? ["float", "f"] : ["double", ""];
  return {
    code: `${device} int truncate_${type}(${real} x) {
  if (x != x) return 0;
  if (x >= 2147483648.0${suffix}) return 2147483647;
  return x < -2147483648.0${suffix} ? -2147483647 - 1 : (int)x;
}`,
  };
}

const entries = {
  /** Neighbouring elements that one thread takes, moved as a whole where memory is aligned for it. */
  Vec: {
    code: `template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T lane[N];
};`,
  },
  /**
   * Waits until the launch before this one on its stream has ended, where this one has begun before that; then lets the one behind it
   * begin. By then everything that came before the one before has ended, which the one behind may count on.
   */
  gridDependencyWait: {
    code: `#ifndef HOLDFAST_INSTRUCTIONS
${device} void gridDependencyWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif`,
  },
  /** Declares shared memory that comes with the launch, which may be more than a kernel can have otherwise. */
  dynamicSharedMemory: {
    code: `#ifndef HOLDFAST_INSTRUCTIONS
#define dynamicSharedMemory(name, bytes) extern __shared__ __align__(16) unsigned char name[]
#endif`,
  },
  load: {
    needs: ["Vec"],
    code: `template <int N, class T>
${device} Vec<T, N> load(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}`,
  },
  store: {
    needs: ["Vec"],
    code: `template <class T, int N>
${device} void store(T* to, const Vec<T, N>& values) {
  *reinterpret_cast<Vec<T, N>*>(to) = values;
}`,
  },
  /** Four elements, `stride` apart. */
  loadEach: {
    needs: ["Vec"],
    code: `template <class T>
${device} Vec<T, 4> loadEach(const T* from, int stride) {
  Vec<T, 4> values;
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) values.lane[k] = from[(long long)(int)k * stride];
  return values;
}`,
  },
  storeEach: {
    needs: ["Vec"],
    code: `template <class T>
${device} void storeEach(T* to, int stride, const Vec<T, 4>& values) {
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) to[(long long)(int)k * stride] = values.lane[k];
}`,
  },
  /** Four elements of each of N neighbours that take turns in memory, read as whole packs. */
  loadInterleaved: {
    needs: ["Vec", "load"],
    code: `template <int N, class T>
${device} void loadInterleaved(const T* from, Vec<T, 4> (&values)[N]) {
  Vec<T, 4> read[N];
  #pragma unroll
  for (int n = 0; n < N; n++) read[n] = load<4>(from + 4 * n);
  #pragma unroll
  for (int n = 0; n < N; n++) {
    #pragma unroll
    for (int k = 0; k < 4; k++) values[n].lane[k] = read[(k * N + n) / 4].lane[(k * N + n) % 4];
  }
}`,
  },
  /** The first `left` of four elements, `stride` apart; zeros for the others. */
  loadSome: {
    needs: ["Vec"],
    code: `template <class T>
${device} Vec<T, 4> loadSome(const T* from, int stride, unsigned left) {
  Vec<T, 4> values;
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) values.lane[k] = k < left ? from[(long long)(int)k * stride] : T(0);
  return values;
}`,
  },
  storeSome: {
    needs: ["Vec"],
    code: `template <class T>
${device} void storeSome(T* to, int stride, unsigned left, const Vec<T, 4>& values) {
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) {
    if (k < left) to[(long long)(int)k * stride] = values.lane[k];
  }
}`,
  },

  min_f32: extreme("min", "f32"),
  max_f32: extreme("max", "f32"),
  min_f64: extreme("min", "f64"),
  max_f64: extreme("max", "f64"),
  min_i32: extremeOfIntegers("min"),
  max_i32: extremeOfIntegers("max"),
  abs_i32: { code: `${device} int abs_i32(int a) { return a < 0 ? (int)(0u - (unsigned)a) : a; }` },
  truncate_f32: truncate("f32"),
  truncate_f64: truncate("f64"),

  /** With e = e^−|x| and t = e / (1 + e): 1 − t on the right and e (1 − t) on the left. Nothing overflows. */
  sigmoid_f32: {
    code: `${device} float sigmoid_f32(float x) {
  const float e = expf(-fabsf(x));
  const float t = e / (e + 1.0f);
  const float b = x < 0.0f ? e : 1.0f;
  return b - b * t;
}`,
  },
  sigmoid_f64: { code: `${device} double sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }` },
  /** By the machine's own exponential and reciprocal, one instruction each: right to 2^-21 of 1, where the exact one is of its result. */
  quick_sigmoid_f32: {
    code: `${device} float quick_sigmoid_f32(float x) {
#ifdef HOLDFAST_INSTRUCTIONS
  return 1.0f / (expf(-x) + 1.0f);
#else
  float power, share;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(power + 1.0f));
  return share;
#endif
}`,
  },
  quick_tanh_f32: {
    needs: ["quick_sigmoid_f32"],
    code: `${device} float quick_tanh_f32(float x) { return 2.0f * quick_sigmoid_f32(2.0f * x) - 1.0f; }`,
  },
  softplus_f32: {
    code: `${device} float softplus_f32(float x) {
  return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}`,
  },
  softplus_f64: {
    code: `${device} double softplus_f64(double x) {
  return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
}`,
  },
  /** Two exactly rounded steps: the same bits as on the CPU. */
  rsqrt_f32: { code: `${device} float rsqrt_f32(float x) { return 1.0f / sqrtf(x); }` },
  rsqrt_f64: { code: `${device} double rsqrt_f64(double x) { return 1.0 / sqrt(x); }` },

  widen_u8: { code: `${device} int widen_u8(unsigned char value) { return value; }` },
  narrow_u8: { code: `${device} unsigned char narrow_u8(int value) { return (unsigned char)value; }` },
  widen_bf16: {
    code: `${device} float widen_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }`,
  },
  /** bits + 0x7fff + the last kept bit carries exactly where rounding to nearest even goes up. The machine makes one NaN of all. */
  narrow_bf16: {
    code: `${device} unsigned short narrow_bf16(float value) {
#ifdef HOLDFAST_INSTRUCTIONS
  const unsigned bits = __float_as_uint(value);
  return value != value ? 0x7fffu : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#else
  unsigned short rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#endif
}`,
  },
  /** Shifted into place and scaled by 2^112, which is exact, subnormals included; infinity and NaN get their exponent. */
  widen_f16: {
    code: `${device} float widen_f16(unsigned short bits) {
  const unsigned magnitude = bits & 0x7fffu;
  const unsigned scaled = __float_as_uint(__uint_as_float(magnitude << 13) * 5192296858534827628530496329220096.0f);
  return __uint_as_float(scaled | (magnitude > 0x7bffu ? 0x7f800000u : 0u) | (bits & 0x8000u) << 16);
}`,
  },
  /**
   * Normal results: the exponent rebiased by −112, rounded to nearest even at bit 13. Below 2^−14 the sum with 0.5 leaves
   * the result at the bottom of the significand, rounded by the adder. From 2^16 on: infinity, or NaN where it was one.
   */
  narrow_f16: {
    code: `${device} unsigned short narrow_f16(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7fffffffu;
  unsigned half = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
  if (magnitude < 0x38800000u) half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  if (magnitude > 0x477fffffu) half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (unsigned short)(half | (bits >> 16 & 0x8000u));
}`,
  },
} satisfies Record<string, PreludeEntry>;

export type PreludeName = keyof typeof entries;

/** The named functions and what they need, each once, in the table's order, which has needs first. */
export function preludeOf(names: ReadonlySet<PreludeName>): string {
  const table: Readonly<Record<string, PreludeEntry>> = entries;
  const wanted = new Set<string>();
  for (const name of names) for (const one of [name, ...(table[name]?.needs ?? [])]) wanted.add(one);
  return Object.entries(table)
    .filter(([name]) => wanted.has(name))
    .map(([, { code }]) => `${code}\n\n`)
    .join("");
}
