/** Selects the algorithm of a CPU GEMM, and lays out its packed operands in scratch memory. Depends on the shape alone. */

import { alignUp, type Bytes } from "../../../units/index.js";
import type { GemmShape } from "../desc.js";
import type { DirectConfig } from "./direct.js";
import { type Element, elementOf } from "./element.js";
import { blocking, spareBytes } from "./multiply.js";
import { panelsPerBlock } from "./pack.js";
import { tileColumns } from "./tile.js";

/** Offsets and strides in bytes. */
export interface PackedPlan {
  readonly algorithm: "packed";
  readonly isAPacked: boolean;
  /** Groups of panels in one matrix of the batch, and in all packed matrices. */
  readonly aGroups: number;
  readonly aBlocks: number;
  readonly aBatchBytes: number;
  readonly bGroups: number;
  readonly bBlocks: number;
  readonly bBatchBytes: number;
  readonly bOffset: number;
  /** Temporary memory for every block. */
  readonly spareOffset: number;
  readonly spareBytes: number;
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
  const element = elementOf(shape.dtype);
  if (!direct) return planPacked(shape, element);
  const { m, n, k } = shape;
  // The columns kernel needs a vector of columns; with fewer, the padding of a packed tile wastes less.
  const hasVectors = direct === "dots" || n >= element.lanes;
  const isThin = hasVectors && Math.min(m, n, k) < minPackedSide;
  return isThin || m * n * k < minPackedWork[direct] ? { algorithm: direct } : planPacked(shape, element);
}

/** Two transposed operands have no direct kernel: they are always packed. */
function directConfig({ a, b, k }: GemmShape): DirectConfig | undefined {
  if (!b.isTransposed || k === 0) return "columns";
  return a.isTransposed ? undefined : "dots";
}

export function planPacked({ m, n, k, batch = 1, a, b }: GemmShape, element: Element): PackedPlan {
  const { tile } = element;
  const strip = blocking(element);
  const aPanels = Math.ceil(m / tile.rows);
  const bPanels = Math.ceil(n / tileColumns(element));
  const aGroups = Math.ceil(aPanels / panelsPerBlock);
  const bGroups = Math.ceil(bPanels / panelsPerBlock);
  // A matrix that the whole batch shares is packed once.
  const aMatrices = a.batchStride ? batch : 1;
  const bMatrices = b.batchStride ? batch : 1;
  const aPanelBytes = tile.rows * k * element.bytes;
  const bPanelBytes = tileColumns(element) * k * element.bytes;
  // An expanded panel is read from the matrix.
  const isAPacked = tile.broadcast !== "expanded";
  const bOffset = isAPacked ? alignUp(aMatrices * aPanels * aPanelBytes, 64) : 0;
  const spareOffset = alignUp(bOffset + bMatrices * bPanels * bPanelBytes, 64);
  const rowStrips = Math.ceil(m / strip.rows);
  const columnStrips = Math.ceil(n / strip.columns);
  const blocks = rowStrips * columnStrips * batch;
  return {
    algorithm: "packed",
    aGroups,
    isAPacked,
    aBlocks: isAPacked ? aGroups * aMatrices : 0,
    aBatchBytes: a.batchStride ? aPanels * aPanelBytes : 0,
    bGroups,
    bBlocks: bGroups * bMatrices,
    bBatchBytes: b.batchStride ? bPanels * bPanelBytes : 0,
    bOffset,
    spareOffset,
    spareBytes: spareBytes(element, k),
    rowStrips,
    columnStrips,
    blocks,
    scratchBytes: alignUp(spareOffset + blocks * spareBytes(element, k), 64),
  };
}
