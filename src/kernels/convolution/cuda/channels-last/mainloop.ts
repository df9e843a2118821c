/**
 * What the kernels of channels-last convolutions share, whichever instruction multiplies: gathered chunks of 16 bytes go to k-tiles in
 * shared memory, and a mainloop turns k-tiles into accumulators.
 */

import type { ConvolutionEpilogue } from "../../problem.js";

/** True if an operand's neighbours in shared memory are along K. */
export interface OperandMajors {
  readonly a: boolean;
  readonly b: boolean;
}

export interface MainloopOptions {
  /** The size of a staged result. Default: 0, none is staged. */
  readonly resultBytes?: number;
  /** True if `roundTile(smem)` rounds operands of a k-tile to TF32. Default: false. */
  readonly roundsTiles?: boolean;
}

/** The parts of a kernel, in C++. */
export interface Mainloop {
  readonly threads: number;
  readonly sharedBytes: number;
  readonly blocksPerSm: number;
  /**
   * `tileM`, `tileN`, `tileK`, `threads`, `chunkElements` and `bytesA`, the size of A's k-tile. `KMajor` and `MnMajor<size>` place the
   * chunks of a row in shared memory: `offset` of a row and a chunk, and `pitch`, the bytes from row to row if these are `period` rows apart.
   */
  readonly declarations: string;
  /** `stageTiles`. */
  readonly stages: string;
  /** The accumulators of the k-tiles from `firstTile` up to `endTile`, which `loadTile(smem, kTile)` copies. */
  readonly multiply: string;
  /** Stores results with bias and epilogue to `staged`, in shared memory, with rows of `stagedStride`. */
  stageResults(epilogue: ConvolutionEpilogue | undefined, hasBias: boolean): string;
  /** Stores sums to `partials`: [splits, m, n]. n is a multiple of a chunk. */
  readonly storePartials: string;
}
