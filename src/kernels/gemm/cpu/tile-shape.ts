/** The shape of the microkernel's tile of C, and how the tile reads A. Both depend on the processor and the engine, and neither changes the bits. */

/**
 * How the microkernel gets a vector with one element of A in every lane:
 * - `load`: a load that broadcasts. x86-64 does this at no cost.
 * - `shuffle`: one load of a vector, then a shuffle for each element.
 * - `expanded`: a plain load. A block copies its panels of A with every element repeated in a whole vector, instead of a packed A.
 */
export type BroadcastOfA = "load" | "shuffle" | "expanded";

export interface TileShape {
  readonly rows: number;
  /** Vectors in a row. */
  readonly vectors: number;
  readonly broadcast: BroadcastOfA;
  /** Steps of k in one iteration of its loop. */
  readonly unroll: number;
}

/**
 * The largest tile that fits in vector registers. V8 has 15 of them on x86-64: 12 accumulators, 2 of B and 1 of A, if the multiply-add
 * works in place. Before V8 13 (Node 24) it needs another register, and 8 accumulators are faster by a third. arm64 has about 29.
 *
 * On arm64 a broadcast occupies a multiplier, so 4 broadcasts for 16 multiply-adds cost a third of the speed. Before V8 12 (Node 22) each
 * load has a bounds check of three instructions, so few loads are faster there than few broadcasts. Before V8 13 an unrolled loop does not
 * keep the accumulators in registers.
 */
function selectTileShape(): TileShape {
  const v8 = Number.parseInt(process.versions.v8, 10);
  if (process.arch === "arm64") {
    if (v8 < 12) return { rows: 4, vectors: 4, broadcast: "shuffle", unroll: 1 };
    return { rows: 5, vectors: 4, broadcast: "expanded", unroll: v8 < 13 ? 1 : 4 };
  }
  return { rows: v8 >= 13 ? 6 : 4, vectors: 2, broadcast: "load", unroll: 1 };
}

export const tileShape = selectTileShape();
