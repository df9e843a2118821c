/**
 * Attention of one position to a cache on CUDA, in one launch; or two, if the columns of a long cache are split over several CTAs.
 *
 * A CTA has a few query heads that share a head of keys. It rotates them, and the new key. A team of lanes takes a column at a time: each
 * lane loads 16 bytes of the key and of the value, so that a column is read once for all query heads. Every team has its own running
 * maximum, total and sums (online softmax); those of a CTA are combined in the order of the warps, and those of several CTAs in the order of
 * the columns. So the bits depend on the shape and the position alone.
 *
 * A CTA loads its first columns before the preceding launch has ended, and later ones while it computes with those before them. The cache's row of the new position is written by one CTA. The others do not read it: they compute the new key themselves.
 */

import type { KernelSource } from "../../../driver/index.js";
import { dtypes } from "../../../ir/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import { maxVectorBytes, warpSize } from "../../cost-model.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { CachedAttentionProblem, CachedDtype, CachedShape } from "../cached-problem.js";

const threads = 256;
const warps = threads / warpSize;

/** CTAs that keep a GPU busy. A constant, because the order of sums follows from it. */
const busyBlocks = 64;
/** Columns that one CTA attends to without a split: more would take longer than a second launch. */
const maxUnsplitColumns = 512;
const minSplitColumns = 128;
/** Sums of a lane: query heads times the elements of a column that it has. */
const maxLaneSums = 64;
/** Elements of a CTA's query heads: they bound its shared memory. */
const maxHeadElements = 1024;

interface CachedConfig {
  readonly dtype: CachedDtype;
  readonly width: number;
  /** Query heads of a CTA. */
  readonly heads: number;
  readonly hasRotation: boolean;
  readonly isSplit: boolean;
}

/** True if the kernels support heads of this width. */
export function canAttendCached(dtype: CachedDtype, width: number): boolean {
  const { lanes, vectors } = teamOf(dtype, width);
  return (width * dtypes[dtype].bytes) % maxVectorBytes === 0 && lanes * vectors <= 2 * warpSize && width > 1;
}

/** The lanes of a team, a power of two, and the vectors of 16 bytes that each has of a column. */
function teamOf(dtype: CachedDtype, width: number): { readonly lanes: number; readonly vectors: number } {
  const columnVectors = (width * dtypes[dtype].bytes) / maxVectorBytes;
  const lanes = Math.min(warpSize, 2 ** Math.ceil(Math.log2(Math.max(1, columnVectors))));
  return { lanes, vectors: Math.ceil(columnVectors / lanes) };
}

/** The query heads of a CTA, and the CTAs that share the columns of a head. */
export function divideCached({ dtype, batch, heads, keyHeads, width, columns }: CachedShape): {
  readonly blockHeads: number;
  readonly splits: number;
} {
  const group = heads / keyHeads;
  const { vectors } = teamOf(dtype, width);
  const laneElements = (vectors * maxVectorBytes) / dtypes[dtype].bytes;
  const fitting = Array.from({ length: group }, (_, index) => index + 1).filter(
    (count) =>
      group % count === 0 &&
      (count === 1 || (count * laneElements <= maxLaneSums && count * width <= maxHeadElements)),
  );
  const isLong = columns > maxUnsplitColumns;
  const busy = fitting.filter((count) => (batch * heads) / count >= busyBlocks);
  const blockHeads = (isLong ? fitting : busy).at(-1) ?? 1;
  if (!isLong) return { blockHeads, splits: 1 };
  const wanted = Math.ceil((4 * busyBlocks * blockHeads) / (batch * heads));
  return { blockHeads, splits: Math.max(1, Math.min(wanted, Math.ceil(columns / minSplitColumns))) };
}

/** Scratch memory: the sums of each CTA, and two numbers for each of its heads. */
export function cachedScratchBytes(shape: CachedShape): number {
  const { splits } = divideCached(shape);
  return splits === 1 ? 0 : shape.batch * shape.heads * splits * (shape.width + 2) * 4;
}

export function lowerCachedAttention(
  problem: CachedAttentionProblem,
  op: string,
  access: "out" | "partial-out" = "out",
): readonly LaunchCommand[] {
  const { dtype, batch, heads, keyHeads, width, length, window, scale, rotation } = problem;
  const { query, key, value, positions, scratch, out } = problem;
  const { blockHeads, splits } = divideCached(problem);
  const isSplit = splits > 1;
  const config = { dtype, width, heads: blockHeads, hasRotation: rotation !== undefined, isSplit };
  const values = {
    ...{ query: query.storage, key: key.storage, value: value.storage, positions: positions.storage },
    ...{ keyCache: problem.keyCache, valueCache: problem.valueCache },
    cosines: rotation?.cosines.storage ?? positions.storage,
    sines: rotation?.sines.storage ?? positions.storage,
    out: isSplit && scratch ? scratch : out,
    ...{ queryBatch: query.batchStride, queryHead: query.headStride },
    ...{ keyBatch: key.batchStride, keyHead: key.headStride },
    ...{ valueBatch: value.batchStride, valueHead: value.headStride },
    ...{ positionBatch: positions.batchStride, cosineBatch: rotation?.cosines.batchStride ?? 0 },
    sineBatch: rotation?.sines.batchStride ?? 0,
    ...{ keyHeads, group: heads / keyHeads, length, splits, scale: scale * Math.LOG2E },
    window: Math.min(window ?? length, length),
  };
  const attend: LaunchCommand = {
    ...{ kind: "launch", op, blocks: ((batch * heads) / blockHeads) * splits },
    source: cachedSource(`cached attention ${JSON.stringify(config)} ${access}`, () =>
      printAttend(config, access),
    ),
    arguments: argumentsInOrder(attendParameters(config, access), values),
  };
  if (!isSplit || !scratch) return [attend];
  const combine: LaunchCommand = {
    ...{ kind: "launch", op, blocks: batch * heads },
    source: cachedSource(`cached attention combine ${dtype} ${width} ${access}`, () =>
      printCombine(dtype, width, access),
    ),
    arguments: argumentsInOrder(combineParameters(access), { partials: scratch, out, splits }),
  };
  return [attend, combine];
}

const attendParameters = ({ isSplit }: CachedConfig, access: "out" | "partial-out") =>
  ({
    query: "in",
    key: "in",
    value: "in",
    cosines: "in",
    sines: "in",
    positions: "in",
    keyCache: "inout",
    valueCache: "inout",
    /** With a split: the sums of each CTA. */
    out: isSplit ? "out" : access,
    queryBatch: "i32",
    queryHead: "i32",
    keyBatch: "i32",
    keyHead: "i32",
    valueBatch: "i32",
    valueHead: "i32",
    positionBatch: "i32",
    cosineBatch: "i32",
    sineBatch: "i32",
    keyHeads: "i32",
    group: "i32",
    length: "i32",
    splits: "i32",
    window: "i32",
    scale: "f32",
  }) as const;

const combineParameters = (access: "out" | "partial-out") =>
  ({ partials: "in", out: access, splits: "i32" }) as const;

/** The type of an element, and its conversions as C++ functions: `widened` to f32 and `narrowed` from it. */
function elementOf(dtype: CachedDtype, conversions: readonly ("widen" | "narrow")[]): string {
  const element = elementTypes[dtype];
  const names = conversions.map((conversion) => element[conversion]).filter((name) => name !== undefined);
  const functions = conversions.map((conversion) => {
    const [name, from, to] =
      conversion === "widen" ? ["widened", "Element", "float"] : ["narrowed", "float", "Element"];
    const { [conversion]: convert } = element;
    return `static __device__ __forceinline__ ${to} ${name}(${from} value) { return ${convert ? `${convert}(value)` : "value"}; }`;
  });
  return [preludeOf(new Set(names)), `typedef ${element.type} Element;`, ...functions].join("\n");
}

function printAttend(config: CachedConfig, access: "out" | "partial-out"): KernelSource {
  const { dtype, width, heads, hasRotation, isSplit } = config;
  const { lanes, vectors } = teamOf(dtype, width);
  const { type } = elementTypes[dtype];
  const vec = maxVectorBytes / dtypes[dtype].bytes;
  return cudaKernel({
    name: `attention.${dtype} cached`,
    parameters: attendParameters(config, access),
    elements: type,
    pointers: { cosines: "float", sines: "float", positions: "int", ...(isSplit && { out: "float" }) },
    threads,
    early: ["positions", "keyCache", "valueCache"],
    declarations: `${elementOf(dtype, ["widen", "narrow"])}
static constexpr unsigned width = ${width}, heads = ${heads}, lanes = ${lanes}, vectors = ${vectors}, vec = ${vec};
static constexpr unsigned threads = ${threads}, warps = ${warps}, teams = threads / lanes, unroll = ${heads * vectors > 4 ? 2 : 4};
static constexpr bool hasRotation = ${hasRotation}, isSplit = ${isSplit};
static constexpr unsigned columnVectors = width / vec, laneElements = vectors * vec;
${dotProduct}${runningSums}`,
    body: attendBody,
  });
}

/** A team's product of a row that its lanes share with the one whose elements `other` gives. */
const dotProduct = `
template <class Other>
static __device__ __forceinline__ float dotOf(const float (&own)[laneElements], Other other) {
  float sum = 0.0f;
#pragma unroll
  for (unsigned e = 0; e < laneElements; e++) sum += own[e] * other(e);
#pragma unroll
  for (unsigned bit = lanes / 2; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  return sum;
}
`;

/** `Running`: a team's online softmax. `add` takes the scores of some columns, in units of log2, and their values. */
const runningSums = `
static __device__ __forceinline__ float negativeInfinity() { return __int_as_float(0xff800000); }

/** The exponent that others are relative to: no difference of two infinities. */
static __device__ __forceinline__ float baseOf(float top) { return top == negativeInfinity() ? 0.0f : top; }

struct Running {
  float sums[heads][laneElements], top[heads], total[heads];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (unsigned h = 0; h < heads; h++) {
      top[h] = negativeInfinity();
      total[h] = 0.0f;
#pragma unroll
      for (unsigned e = 0; e < laneElements; e++) sums[h][e] = 0.0f;
    }
  }

  template <unsigned COUNT, class Value>
  __device__ __forceinline__ void add(const float (&scores)[COUNT][heads], Value value) {
#pragma unroll
    for (unsigned h = 0; h < heads; h++) {
      float next = top[h];
#pragma unroll
      for (unsigned u = 0; u < COUNT; u++) next = fmaxf(next, scores[u][h]);
      const float base = baseOf(next), factor = exp2f(top[h] - base);
      top[h] = next;
      total[h] *= factor;
#pragma unroll
      for (unsigned e = 0; e < laneElements; e++) sums[h][e] *= factor;
#pragma unroll
      for (unsigned u = 0; u < COUNT; u++) {
        const float power = exp2f(scores[u][h] - base);
        total[h] += power;
#pragma unroll
        for (unsigned e = 0; e < laneElements; e++) sums[h][e] += power * value(u, e);
      }
    }
  }

  /** Adds those of the lanes whose index differs in a bit. */
  __device__ __forceinline__ void combine(unsigned bit) {
#pragma unroll
    for (unsigned h = 0; h < heads; h++) {
      const float next = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], bit));
      const float factor = exp2f(top[h] - baseOf(next));
      top[h] = next;
      total[h] *= factor;
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], bit);
#pragma unroll
      for (unsigned e = 0; e < laneElements; e++) {
        sums[h][e] *= factor;
        sums[h][e] += __shfl_xor_sync(0xffffffffu, sums[h][e], bit);
      }
    }
  }
};`;

const attendBody = `
  __shared__ float queries[heads * width], newKey[width], newValue[width];
  __shared__ float warpSums[warps][heads * width], warpTop[warps][heads], warpTotal[warps][heads];
  const unsigned perGroup = (unsigned)group / heads;
  unsigned rest = blockIdx.x;
  const int split = (int)(rest % (unsigned)splits);
  rest /= (unsigned)splits;
  const unsigned part = rest % perGroup;
  rest /= perGroup;
  const int keyIndex = (int)(rest % (unsigned)keyHeads);
  const long long sequence = rest / (unsigned)keyHeads;
  const int firstHead = keyIndex * group + (int)(part * heads);
  const int position = positions[sequence * positionBatch];
  const unsigned lane = threadIdx.x % lanes, team = threadIdx.x / lanes, warp = threadIdx.x / 32;
  const long long rowStride = (long long)keyHeads * width;
  const long long firstRow = sequence * length * rowStride + (long long)keyIndex * width;
  const int first = position + 1 > window ? position + 1 - window : 0;
  const int share = (position - first + splits - 1) / splits;
  const int begin = first + split * share, end = begin + share < position ? begin + share : position;
  struct Columns {
    uint4 keys[unroll][vectors], values[unroll][vectors];
  };
  const auto columnsAt = [&](int base) {
    Columns loaded;
#pragma unroll
    for (unsigned u = 0; u < unroll; u++) {
      const int column = base + (int)(u * teams + team);
#pragma unroll
      for (unsigned v = 0; v < vectors; v++) {
        loaded.keys[u][v] = loaded.values[u][v] = make_uint4(0, 0, 0, 0);
        if (column < end && v * lanes + lane < columnVectors) {
          const long long at = firstRow + column * rowStride + (v * lanes + lane) * vec;
          loaded.keys[u][v] = *reinterpret_cast<const uint4*>(keyCache + at);
          loaded.values[u][v] = *reinterpret_cast<const uint4*>(valueCache + at);
        }
      }
    }
    return loaded;
  };
  // Earlier steps wrote these columns, so they are loaded while the preceding launch computes the new ones.
  Columns present = columnsAt(begin);
  gridDependencyWait();

  // The new position: heads in f32, rounded as they would be stored.
  constexpr unsigned half = width / 2;
  for (unsigned task = threadIdx.x; task < (heads + 1) * half; task += threads) {
    const unsigned h = task / half, i = task % half;
    const Element* const from = h == heads ? key + sequence * keyBatch + (long long)keyIndex * keyHead
                                           : query + sequence * queryBatch + (long long)(firstHead + (int)h) * queryHead;
    float first = widened(from[i]), second = widened(from[i + half]);
    if (hasRotation) {
      const float cosine = cosines[sequence * cosineBatch + i], sine = sines[sequence * sineBatch + i];
      const float rotated = first * cosine - second * sine;
      second = widened(narrowed(second * cosine + first * sine));
      first = widened(narrowed(rotated));
    }
    float* const to = h == heads ? newKey : queries + h * width;
    const float factor = h == heads ? 1.0f : scale;
    to[i] = first * factor;
    to[i + half] = second * factor;
  }
  for (unsigned i = threadIdx.x; i < width; i += threads)
    newValue[i] = widened(value[sequence * valueBatch + (long long)keyIndex * valueHead + i]);
  __syncthreads();
  if (part == 0 && split == 0) {
    for (unsigned i = threadIdx.x; i < width; i += threads) {
      keyCache[firstRow + position * rowStride + i] = narrowed(newKey[i]);
      valueCache[firstRow + position * rowStride + i] = narrowed(newValue[i]);
    }
  }

  // A lane has vectors of 16 bytes, the first of them at its own index; those after the last one are zeros.
  const auto isInside = [&](unsigned e) { return e / vec * lanes + lane < columnVectors; };
  const auto indexOf = [&](unsigned e) { return (e / vec * lanes + lane) * vec + e % vec; };
  float own[heads][laneElements];
#pragma unroll
  for (unsigned h = 0; h < heads; h++)
#pragma unroll
    for (unsigned e = 0; e < laneElements; e++) own[h][e] = isInside(e) ? queries[h * width + indexOf(e)] : 0.0f;
  Running running;
  running.clear();
  for (int base = begin; base < end; base += (int)(teams * unroll)) {
    const Columns following = columnsAt(base + (int)(teams * unroll));
    float scores[unroll][heads];
#pragma unroll
    for (unsigned u = 0; u < unroll; u++) {
      const Element* const column = reinterpret_cast<const Element*>(present.keys[u]);
#pragma unroll
      for (unsigned h = 0; h < heads; h++) {
        const float score = dotOf(own[h], [&](unsigned e) { return widened(column[e]); });
        scores[u][h] = base + (int)(u * teams + team) < end ? score : negativeInfinity();
      }
    }
    running.add(scores, [&](unsigned u, unsigned e) { return widened(reinterpret_cast<const Element*>(present.values[u])[e]); });
    present = following;
  }
  // One team adds the new column.
  if (split == splits - 1 && warp == 0) {
    float scores[1][heads];
#pragma unroll
    for (unsigned h = 0; h < heads; h++) {
      const float score = dotOf(own[h], [&](unsigned e) { return isInside(e) ? newKey[indexOf(e)] : 0.0f; });
      scores[0][h] = team == 0 ? score : negativeInfinity();
    }
    running.add(scores, [&](unsigned, unsigned e) { return isInside(e) ? newValue[indexOf(e)] : 0.0f; });
  }
#pragma unroll
  for (unsigned bit = lanes; bit < 32; bit *= 2) running.combine(bit);
  if (threadIdx.x % 32 < lanes) {
#pragma unroll
    for (unsigned h = 0; h < heads; h++) {
      if (lane == 0) {
        warpTop[warp][h] = running.top[h];
        warpTotal[warp][h] = running.total[h];
      }
#pragma unroll
      for (unsigned e = 0; e < laneElements; e++)
        if (isInside(e)) warpSums[warp][h * width + indexOf(e)] = running.sums[h][e];
    }
  }
  __syncthreads();
  for (unsigned task = threadIdx.x; task < heads * width; task += threads) {
    const unsigned h = task / width, i = task % width;
    float top = negativeInfinity(), total = 0.0f, sum = 0.0f;
    for (unsigned w = 0; w < warps; w++) top = fmaxf(top, warpTop[w][h]);
    for (unsigned w = 0; w < warps; w++) {
      const float factor = exp2f(warpTop[w][h] - baseOf(top));
      total += factor * warpTotal[w][h];
      sum += factor * warpSums[w][task];
    }
    const long long head = sequence * keyHeads * group + firstHead + (int)h;
    if constexpr (isSplit) {
      out[(head * splits + split) * (width + 2) + i] = sum;
      if (i == 0) {
        out[(head * splits + split) * (width + 2) + width] = top;
        out[(head * splits + split) * (width + 2) + width + 1] = total;
      }
    } else {
      out[head * width + i] = narrowed(sum / total);
    }
  }`;

/** Combines the CTAs of a head, in the order of their columns. */
function printCombine(dtype: CachedDtype, width: number, access: "out" | "partial-out"): KernelSource {
  return cudaKernel({
    name: `attention.${dtype} cached combine`,
    parameters: combineParameters(access),
    elements: elementTypes[dtype].type,
    pointers: { partials: "float" },
    threads: 64,
    declarations: `${elementOf(dtype, ["narrow"])}\nstatic constexpr unsigned width = ${width};`,
    body: `
  const float* const own = partials + (long long)blockIdx.x * splits * (width + 2);
  float top = __int_as_float(0xff800000);
  for (int split = 0; split < splits; split++) top = fmaxf(top, own[split * (int)(width + 2) + (int)width]);
  for (unsigned i = threadIdx.x; i < width; i += 64) {
    float total = 0.0f, sum = 0.0f;
    for (int split = 0; split < splits; split++) {
      const float* const part = own + split * (int)(width + 2);
      const float factor = exp2f(part[width] - top);
      total += factor * part[width + 1];
      sum += factor * part[i];
    }
    out[(long long)blockIdx.x * width + i] = narrowed(sum / total);
  }`,
  });
}
