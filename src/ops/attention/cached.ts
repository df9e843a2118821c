/**
 * cachedAttention: one new position of each sequence rotates its query and its key, is written to a cache, and attends to the cache, in one
 * launch. Only for backends whose `attendsCached` allows it; `KvCache` has the same with other ops.
 */

import type { CachedAttentionProblem, CachedShape, NewHeads } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, isContiguous } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { badShape, formatShape } from "../shape.js";

export type CachedAttentionAttributes = {
  /** An upper bound of all positions + 1. */
  readonly columns: number;
  readonly scale: number;
  /** The positions that a row attends to, itself included; null for all. */
  readonly window: number | null;
};

const op = "cachedAttention";

/**
 * Operands: query [B, 1, heads, width], key and value [B, 1, keyHeads, width], the two caches [sequences, L, keyHeads, width], positions i32
 * [B or 1, 1], and optional cosines and sines f32 [B or 1, 1, 1, width / 2]. The caches are written in place: B sequences, at their positions.
 */
export const cachedAttention: KernelOp<CachedAttentionAttributes> = {
  kind: "kernel",
  name: op,
  noGradient: "it overwrites the cache",
  infer(operands) {
    const [query, key, value, keyCache, valueCache] = [0, 1, 2, 3, 4].map((index) =>
      typeAt(op, operands, index),
    );
    if (!query || !key || !value || !keyCache || !valueCache) return [];
    const [batch = 0, rows = 0, heads = 0, width = 0] = query.shape;
    const [sequences = 0, , keyHeads = 0] = keyCache.shape;
    const isFitting =
      rows === 1 &&
      heads % keyHeads === 0 &&
      batch <= sequences &&
      [key, value].every(({ shape }) => shape.join() === [batch, 1, keyHeads, width].join()) &&
      valueCache.shape.join() === keyCache.shape.join() &&
      [key, value, keyCache, valueCache].every(({ dtype }) => dtype === query.dtype);
    if (!isFitting) {
      throw badShape(
        op,
        `query ${formatShape(query.shape)}, key ${formatShape(key.shape)} and caches ${formatShape(keyCache.shape)}: they must be ` +
          "[B, 1, heads, width], [B, 1, keyHeads, width] and [sequences, L, keyHeads, width], of one dtype.",
      );
    }
    return [{ shape: query.shape, dtype: query.dtype }];
  },
  lower(lowering, operands, [output], { columns, scale, window }) {
    const [query, key, value, keyCache, valueCache, positions] = [0, 1, 2, 3, 4, 5].map((index) =>
      arrayAt(operands, index),
    );
    if (
      !query ||
      !key ||
      !value ||
      !keyCache?.storage ||
      !valueCache?.storage ||
      !positions ||
      !output?.storage
    )
      return;
    const { dtype } = query;
    if (dtype !== "f32" && dtype !== "bf16" && dtype !== "f16") return;
    const [batch = 1, , heads = 1, width = 1] = query.shape;
    const [, length = 1, keyHeads = 1] = keyCache.shape;
    const shape: CachedShape = { dtype, batch, heads, keyHeads, width, length, columns };
    const bytes = lowering.backend.cachedScratchBytes(shape);
    const rotation = operands.length > 6 && {
      cosines: ofSequence(lowering, arrayAt(operands, 6)),
      sines: ofSequence(lowering, arrayAt(operands, 7)),
    };
    const problem: CachedAttentionProblem = {
      ...shape,
      ...{ query: newHeads(lowering, query), key: newHeads(lowering, key), value: newHeads(lowering, value) },
      ...{
        keyCache: keyCache.storage,
        valueCache: valueCache.storage,
        positions: ofSequence(lowering, positions),
      },
      ...(rotation && { rotation }),
      ...(window !== null && { window }),
      ...{ scale, out: output.storage },
      ...(bytes > 0 && { scratch: lowering.scratch(bytes) }),
    };
    lowering.emit(lowering.backend.lowerCachedAttention(problem, op));
  },
};

/** [B, 1, heads, width] with strides; a copy if a head is not contiguous. */
function newHeads(lowering: Lowering, array: DeviceArray): NewHeads {
  const { strides, storage } = array.strides.at(-1) === 1 ? array : contiguous(lowering, array);
  const [batchStride = 0, , headStride = 0] = strides;
  if (!storage) throw new Error("The heads of a position have no memory.");
  return { storage, batchStride, headStride };
}

/** [B or 1, …], with what follows in a row. */
function ofSequence(lowering: Lowering, array: DeviceArray) {
  const inner = { ...array, shape: array.shape.slice(1), strides: array.strides.slice(1) };
  const { shape, strides, storage } = isContiguous(inner) ? array : contiguous(lowering, array);
  if (!storage) throw new Error("The numbers of a position have no memory.");
  return { storage, batchStride: shape[0] === 1 ? 0 : (strides[0] ?? 0) };
}

function contiguous(lowering: Lowering, array: DeviceArray): DeviceArray {
  const copy = lowering.scratchArray(array.shape, array.dtype);
  copyArray(lowering, array, copy);
  return { ...copy, strides: contiguousStrides(array.shape) };
}
