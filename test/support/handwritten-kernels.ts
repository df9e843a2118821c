/**
 * The kernels that are written in CUDA C++ by hand, in the configurations that need the most registers and
 * shared memory.
 */

import assert from "node:assert/strict";
import type { KernelSource } from "holdfast/internals";
import { term } from "../../src/ir/index.js";
import type { Elements } from "../../src/kernels/attention/cuda/element.js";
import { flashBackwardKernel } from "../../src/kernels/attention/cuda/flash/backward.js";
import { deltaKernel } from "../../src/kernels/attention/cuda/flash/deltas.js";
import { flashForwardKernel } from "../../src/kernels/attention/cuda/flash/forward.js";
import { type FlashElement, isScalar } from "../../src/kernels/attention/cuda/flash/fragments.js";
import { stridesOf } from "../../src/kernels/attention/cuda/parameters.js";
import { smallBackwardKernel } from "../../src/kernels/attention/cuda/small-backward.js";
import { smallForwardKernel } from "../../src/kernels/attention/cuda/small-forward.js";
import { type Direction, planSmall } from "../../src/kernels/attention/cuda/small-plan.js";
import { tiledColumnsKernel, tiledRowsKernel } from "../../src/kernels/attention/cuda/tiled-backward.js";
import { tiledForwardKernel } from "../../src/kernels/attention/cuda/tiled-forward.js";
import { printSectionedReduceKernel } from "../../src/kernels/codegen/cuda/sectioned-reduce-kernel.js";
import { rowMapKernel } from "../../src/kernels/compact-rows/cuda-row-map.js";
import { orthogonalKernels } from "../../src/kernels/random/orthogonal-kernel.js";
import { randomKernels } from "../../src/kernels/random/random-kernel.js";
import { valueDtypes, valueKernel } from "../../src/kernels/random/value-kernel.js";
import { maxMembers } from "../../src/kernels/scan-scatter/cuda-members.js";
import { partitionKernels } from "../../src/kernels/scan-scatter/cuda-partition.js";
import { rowListsKernel } from "../../src/kernels/scan-scatter/cuda-row-lists.js";
import { cudaScanKernel } from "../../src/kernels/scan-scatter/cuda-scan.js";
import { cudaScatterKernel } from "../../src/kernels/scan-scatter/cuda-scatter.js";
import { listScatterKernel } from "../../src/kernels/scan-scatter/cuda-scatter-lists.js";
import { rowScatterKernel } from "../../src/kernels/scan-scatter/cuda-scatter-rows.js";
import { effort, isThorough } from "./effort.js";

type FloatDtype = "f32" | "f64";
type Sizes = readonly [rows: number, columns: number, width: number, valueWidth: number];

/** Attention of a small shape in one block. */
export function smallAttention(
  direction: Direction,
  dtype: FloatDtype,
  sizes: Sizes,
  isPlain: boolean,
  elements = elementsOf(dtype),
): KernelSource {
  const [rows, columns, width, valueWidth] = sizes;
  const shape = { dtype, batch: 1, heads: 1, rows, columns, width, valueWidth };
  const plan = planSmall(direction, dtype, shape);
  assert.ok(plan, `${sizes} fit a block`);
  const facts = { areVectors: isPlain, isCausal: !isPlain };
  const layout = { storage: undefined as never, dtype, width, strides: { Batch: 1024, Head: 0, Row: 64 } };
  const [query, key, value] = [layout, layout, layout];
  if (direction === "forward") {
    const strides = { ...stridesOf({ query, key, value, mask: layout, out: layout }), maskColumn: 1 };
    return smallForwardKernel(elements, "out", plan, { ...facts, hasMask: !isPlain }, strides);
  }
  const gradients = { queryGradient: query, keyGradient: key, valueGradient: value };
  const strides = stridesOf({ query, key, value, outGradient: layout, ...gradients });
  return smallBackwardKernel(elements, "out", plan, facts, strides);
}

/** In f32 or f64, with half-float outputs and, of these inputs, half-float inputs. */
export function elementsOf(
  dtype: FloatDtype,
  halves?: "f16" | "bf16",
  names: readonly string[] = [],
): Elements {
  const read = halves && names.length > 0 ? { dtype: halves, names } : { names: [] };
  return { dtype, resultDtype: halves ?? dtype, halves: read };
}

/** Flash attention of heads of 64, causal and masked, with grouped heads and dropout. */
function flashAttention(element: FlashElement, vector: 1 | 2): readonly KernelSource[] {
  const dtype = element === "tf32" ? "f32" : element;
  const [source, halfSource] = [
    { dtype, isAligned: true } as const,
    { dtype: "f32", isAligned: false } as const,
  ];
  const other = isScalar(element) ? source : halfSource;
  const sources = { query: source, key: other, value: source, outGradient: other };
  const tileN = element === "f64" ? 16 : element === "f32" ? 32 : 64;
  const config = {
    ...{ element, depth: 64, valueDepth: 64, isCausal: true, hasMask: true, isGrouped: true, sources },
    ...{ tile: { warps: 4, blocksM: 1, tileN, stages: 2 }, resultDtype: dtype },
    access: "out",
  } as const;
  const dropout = vector === 1 ? "draws" : "loads";
  return [
    flashForwardKernel({ ...config, dropout: "stores" }),
    flashBackwardKernel({
      ...{ ...config, dropout, side: "rows" },
      ...{ results: ["queryGradient"], storesScoreGradient: true },
    }),
    flashBackwardKernel({
      ...{
        ...config,
        dropout,
        side: "columns",
        results: ["keyGradient", "valueGradient"],
        storesScoreGradient: false,
      },
    }),
    deltaKernel({ outGradient: dtype, out: dtype, vector, lanes: 8 }),
  ];
}

/** The most important shape: a small transformer's, 12 rows and columns in heads of 64. */
export const transformer: Sizes = [12, 12, 64, 64];

/** The largest register use: of rows, of scores, and with the most lanes in a block. */
const longest = { f32: [16, 12, 128, 128], f64: [16, 12, 64, 64] } as const;
const maxScores: Sizes = [16, 64, 4, 4];
const maxThreads = { f32: [1, 64, 48, 48], f64: [1, 64, 12, 12] } as const;

/** Every kind of kernel in f32, and attention of half floats: compiled with every run of the suite. */
export const commonKernels: readonly KernelSource[] = [
  randomKernels.reserveDraw,
  valueKernel("normal", "f32"),
  valueKernel("truncNormal", "bf16"),
  orthogonalKernels.reflectUnits,
  cudaScanKernel("f32"),
  cudaScatterKernel("f32"),
  ...[
    ...partitionKernels(1),
    ...partitionKernels(maxMembers),
    rowListsKernel(),
    listScatterKernel({ dtype: "f32", access: "out", isVectorised: true }),
  ],
  ...(["claim", "look up"] as const).map((kernel) => rowMapKernel(kernel, 64)),
  printSectionedReduceKernel(
    {
      ...{ name: "norm", dtype: "f32", scalars: [], op: "add" },
      value: term.convert(term.load(0, "f32"), "f64"),
    },
    effort({ quick: 4, thorough: 16 }),
  ),
  ...[1, maxMembers].map((size) =>
    rowScatterKernel({ dtype: "f32", entries: "all", access: "out", isVectorised: true, size }),
  ),
  // The largest register uses, and inputs of half floats.
  ...(["forward", "backward"] as const).flatMap((direction) => [
    smallAttention(direction, "f32", longest.f32, false),
    smallAttention(direction, "f32", transformer, true, elementsOf("f32", "bf16", ["query", "key", "value"])),
  ]),
  tiledForwardKernel(elementsOf("f32"), "out"),
  tiledRowsKernel(elementsOf("f32"), "out"),
  tiledColumnsKernel(elementsOf("f32"), "out"),
  // Of the two backward kernels, a quick run has the one with more registers.
  ...flashAttention("bf16", 2).filter((_, index) => index !== 1 || isThorough),
];

/** All of them, in every dtype. */
export const handwrittenKernels: readonly KernelSource[] = [
  randomKernels.reserveDraw,
  ...Object.values(orthogonalKernels),
  ...(["uniform", "normal", "truncNormal"] as const).flatMap((kind) =>
    valueDtypes.map((dtype) => valueKernel(kind, dtype)),
  ),
  ...(["f32", "f64", "i32"] as const).flatMap((dtype) => [
    cudaScanKernel(dtype),
    cudaScatterKernel(dtype),
    listScatterKernel({ dtype, access: "inout", isVectorised: false }),
    ...(["all", "bucket"] as const).flatMap((entries) =>
      (["inout", "out"] as const).flatMap((access) =>
        [true, false].flatMap((isVectorised) =>
          [1, maxMembers].map((size) => rowScatterKernel({ dtype, entries, access, isVectorised, size })),
        ),
      ),
    ),
  ]),
  ...flashAttention("f16", 1),
  ...flashAttention("tf32", 2),
  ...flashAttention("f32", 1),
  ...flashAttention("f64", 2),
  smallAttention("forward", "f32", [1, 1, 1, 1], true),
  smallAttention("backward", "f32", [1, 1, 1, 1], true),
  ...(["f32", "f64"] as const).flatMap((dtype) => [
    ...(["forward", "backward"] as const).flatMap((direction) => [
      smallAttention(direction, dtype, transformer, true),
      smallAttention(direction, dtype, [5, 7, 3, 9], false),
      smallAttention(direction, dtype, longest[dtype], false),
    ]),
    smallAttention("forward", dtype, maxScores, false),
    smallAttention("backward", dtype, maxThreads[dtype], false),
    tiledForwardKernel(elementsOf(dtype), "out"),
    tiledRowsKernel(elementsOf(dtype), "out"),
    tiledColumnsKernel(elementsOf(dtype), "out"),
  ]),
  ...(["f16", "bf16"] as const).flatMap((halves) =>
    [[], ["query", "key", "value"], ["value", "outGradient"]].flatMap((names) => {
      const elements = elementsOf("f32", halves, names);
      return [
        ...(["forward", "backward"] as const).flatMap((direction) => [
          smallAttention(direction, "f32", transformer, true, elements),
          smallAttention(direction, "f32", [5, 7, 3, 9], false, elements),
        ]),
        tiledForwardKernel(elements, "out"),
        tiledRowsKernel(elements, "out"),
        tiledColumnsKernel(elements, "out"),
      ];
    }),
  ),
];
