/** Selects the algorithm of a CPU GEMM, and lays out its packed operands in scratch memory. Depends on the shape alone. */

import { alignUp, type Bytes } from "../../../units/index.js";
import type { GemmShape } from "../desc.js";
import type { DirectConfig } from "./direct.js";
import { elementOf } from "./element.js";
import { blocking } from "./multiply.js";
import { panelsPerBlock } from "./pack.js";
import { tileBytes, tileColumns, tileShape } from "./tile.js";

/** Offsets and strides in bytes. */
export interface PackedPlan {
  readonly algorithm: "packed";
  /** Groups of panels in one matrix of the batch, and in all packed matrices. */
  readonly aGroups: number;
  readonly aBlocks: number;
  readonly aBatchBytes: number;
  readonly bGroups: number;
  readonly bBlocks: number;
  readonly bBatchBytes: number;
  readonly bOffset: number;
  /** A temporary tile for every block, for tiles that cross C's edge. */
  readonly spareOffset: number;
  readonly rowStrips: number;
  readonly columnStrips: number;
  readonly blocks: number;
  readonly scratchBytes: Bytes;
}

export type GemmPlan = { readonly algorithm: DirectConfig } | PackedPlan;

/** Below this many multiply-adds packing does not pay off; measured on cubes with `npm run bench:gemm`. */
const minPackedWork: Readonly<Record<DirectConfig, number>> = { columns: 64 ** 3, dots: 40 ** 3 };

/** A packed operand is read once per panel of the other one. With few panels packing costs more than it saves. */
const minPackedSide = 24;

export function planGemm(shape: GemmShape): GemmPlan {
  const direct = directConfig(shape);
  if (!direct) return planPacked(shape);
  const { m, n, k } = shape;
  // The columns kernel needs a vector of columns; with fewer, the padding of a packed tile wastes less.
  const hasVectors = direct === "dots" || n >= elementOf(shape.dtype).lanes;
  const isThin = hasVectors && Math.min(m, n, k) < minPackedSide;
  return isThin || m * n * k < minPackedWork[direct] ? { algorithm: direct } : planPacked(shape);
}

/** Two transposed operands have no direct kernel: they are always packed. */
function directConfig({ a, b, k }: GemmShape): DirectConfig | undefined {
  if (!b.isTransposed || k === 0) return "columns";
  return a.isTransposed ? undefined : "dots";
}

function planPacked({ dtype, m, n, k, batch = 1, a, b }: GemmShape): PackedPlan {
  const element = elementOf(dtype);
  const strip = blocking(element);
  const aPanels = Math.ceil(m / tileShape.rows);
  const bPanels = Math.ceil(n / tileColumns(element));
  const aGroups = Math.ceil(aPanels / panelsPerBlock);
  const bGroups = Math.ceil(bPanels / panelsPerBlock);
  // A matrix that the whole batch shares is packed once.
  const aMatrices = a.batchStride ? batch : 1;
  const bMatrices = b.batchStride ? batch : 1;
  const aPanelBytes = tileShape.rows * k * element.bytes;
  const bPanelBytes = tileColumns(element) * k * element.bytes;
  const bOffset = alignUp(aMatrices * aPanels * aPanelBytes, 64);
  const spareOffset = alignUp(bOffset + bMatrices * bPanels * bPanelBytes, 64);
  const rowStrips = Math.ceil(m / strip.rows);
  const columnStrips = Math.ceil(n / strip.columns);
  const blocks = rowStrips * columnStrips * batch;
  return {
    algorithm: "packed",
    aGroups,
    aBlocks: aGroups * aMatrices,
    aBatchBytes: a.batchStride ? aPanels * aPanelBytes : 0,
    bGroups,
    bBlocks: bGroups * bMatrices,
    bBatchBytes: b.batchStride ? bPanels * bPanelBytes : 0,
    bOffset,
    spareOffset,
    rowStrips,
    columnStrips,
    blocks,
    scratchBytes: alignUp(spareOffset + blocks * tileBytes, 64),
  };
}
