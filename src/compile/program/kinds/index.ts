/** The table of kinds of calls. A new kind is a file of this folder, a line of `Work` and a line of `kinds`. */

import { type AttentionCall, attention } from "./attention.js";
import { type ChunkedReduceCall, chunkedReduce } from "./chunked-reduce.js";
import { type ColumnCall, column } from "./column.js";
import { type ComboCall, combo } from "./combo.js";
import { type ConvolutionCall, convolution } from "./convolution.js";
import { type CopyCall, copy } from "./copy.js";
import { type FillCall, fill } from "./fill.js";
import { type GemmCall, gemm } from "./gemm.js";
import { type GemmEpilogueCall, gemmEpilogue } from "./gemm-epilogue.js";
import { type GemmPrologueCall, gemmPrologue } from "./gemm-prologue.js";
import { type GemmSumCall, gemmSum } from "./gemm-sum.js";
import { type GroupedGemmCall, groupedGemm } from "./grouped-gemm.js";
import { type GroupedReduceCall, groupedReduce } from "./grouped-reduce.js";
import { type GroupedScatterCall, groupedScatter } from "./grouped-scatter.js";
import type { Kind } from "./kind.js";
import { type LaunchCall, launch } from "./launch.js";
import { type LoopCall, loop } from "./loop.js";
import { type PartialReduceCall, partialReduce } from "./partial-reduce.js";
import { type RowCall, row } from "./row.js";
import { type RowMapCall, rowMap } from "./row-map.js";
import { type ScatterCall, scatter } from "./scatter.js";

export type Work =
  | RowCall
  | ComboCall
  | ColumnCall
  | GroupedReduceCall
  | PartialReduceCall
  | GemmCall
  | GroupedGemmCall
  | GemmEpilogueCall
  | GemmPrologueCall
  | GemmSumCall
  | AttentionCall
  | ConvolutionCall
  | ScatterCall
  | GroupedScatterCall
  | RowMapCall
  | ChunkedReduceCall
  | LoopCall
  | LaunchCall
  | FillCall
  | CopyCall;

const kinds: { readonly [K in Work["kind"]]: Kind<Extract<Work, { readonly kind: K }>> } = {
  row,
  combo,
  column,
  "grouped-reduce": groupedReduce,
  "partial-reduce": partialReduce,
  gemm,
  "grouped-gemm": groupedGemm,
  "gemm-epilogue": gemmEpilogue,
  "gemm-prologue": gemmPrologue,
  "gemm-sum": gemmSum,
  attention,
  convolution,
  scatter,
  "grouped-scatter": groupedScatter,
  "row-map": rowMap,
  "chunked-reduce": chunkedReduce,
  launch,
  loop,
  fill,
  copy,
};

/** The kind of some work. */
export function kindOf<W extends Work>({ kind }: W): Kind<W> {
  return kinds[kind] as unknown as Kind<W>;
}
