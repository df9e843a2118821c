/**
 * Selects the layout and the launch parameters of a row kernel on a GPU. Vectorisation and aliasing depend on addresses, so they are decided
 * here.
 */

import type { DeviceInfo } from "../../../driver/index.js";
import { HoldfastError } from "../../../errors/index.js";
import type { RowKernel } from "../../../ir/index.js";
import {
  factsOf,
  type InnerStride,
  type Iteration,
  innerStrideOf,
  type RowFacts,
} from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import { literalKey, overlaps } from "../../../units/index.js";
import { residentBlocksOf, residentSharedBytes, warpSize } from "../../cost-model.js";
import type { LaunchConfig } from "../../launch-config.js";
import { changeConditionOf } from "../unchanged-rows.js";
import { mediumPartials } from "./column-config.js";
import { storesColsums } from "./column-partials.js";
import { type ColumnSumLayout, type ColumnSumTarget, columnSumLayoutsOf } from "./column-sum-layout.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { elementThreads, printElementFunction, printElementKernel } from "./element-kernel.js";
import { requireCountable, requireStride } from "./limits.js";
import { canReduceWith, printReducingFunction, printReducingKernel, rowsPerBlock } from "./row-kernel.js";
import { drawnBytes } from "./row-loop-time.js";
import type { Alias, RowLayout } from "./row-operands.js";
import { inputsOfSeveralPasses, reductionBytes, usesOnlineSoftmax } from "./row-passes.js";
import type { ReducingLayout, SharedVectors } from "./row-vectors.js";
import { areVectorised, areWide, isAligned, vectorWidth, wideVectorWidth } from "./vector-alignment.js";

/** A launch config, and the same kernel as a member of a combo kernel. */
export interface RowConfig extends LaunchConfig {
  /** Undefined if the kernel needs larger blocks than combo kernels have. */
  readonly member?: { readonly blocks: number; print(name: string): BlockFunction };
}

/** The numbers of a Philox call. */
const numbersOfCall = 8;

/** Threads of a block of a combo kernel. */
export const comboThreads = elementThreads;

export interface RowOptions {
  /** The inputs that can be loaded before the grid dependency wait; undefined without programmatic dependent launch. */
  readonly prefetchable?: readonly boolean[] | undefined;
  /** The device, whose shared memory can keep long rows. Default: none does. */
  readonly device?: DeviceInfo | undefined;
  /** Use approximate functions. Default: false. */
  readonly usesFastMath?: boolean | undefined;
  /** True if column sums need the bits of a column kernel. Default: true. */
  readonly keepsColumnOrder?: boolean | undefined;
  /** How column sums are computed. Default: `columnSumLayout`. */
  readonly columnSums?: ColumnSumLayout | undefined;
}

export function cudaRowConfig(
  kernel: RowKernel,
  iteration: Iteration,
  operands: readonly Storage[],
  options: RowOptions = {},
): RowConfig {
  const facts = factsOf(kernel);
  const select = isThreadLocal(facts, iteration) ? elementConfig : reducingConfig;
  return select(kernel, facts, iteration, operands, options);
}

/** True if no thread reads another thread's elements after a store, so that rows need no synchronisation. */
function isThreadLocal(facts: RowFacts, { kind }: Iteration): boolean {
  return facts.isElementwise && (kind === "elements" || !facts.readsAcrossStores);
}

/** True if the kernel can be a member of a combo kernel. */
export function canBeMember(kernel: RowKernel, iteration: Iteration): boolean {
  if (storesColsums(kernel)) return false;
  return (
    isThreadLocal(factsOf(kernel), iteration) || canReduceWith(comboThreads, lanesOf(iteration.row.size))
  );
}

function elementConfig(
  kernel: RowKernel,
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
  { prefetchable, usesFastMath = false }: RowOptions,
): RowConfig {
  const { outer, row, elements } = iteration;
  requireCountable(kernel, elements, "elements");
  const isWide = areWide(facts, iteration, operands);
  const hasWholeVectors = row.size % vectorWidth === 0;
  // Lanes beyond the end must not be used as an index.
  const mayHaveTail = outer.length === 0 && row.size > vectorWidth && !facts.readsAtIndex;
  const isVectorised = (hasWholeVectors || mayHaveTail) && areVectorised(facts, iteration, operands);
  const width = isWide ? wideVectorWidth : isVectorised ? vectorWidth : 1;
  const access = isVectorised && !hasWholeVectors ? "tail" : "vector";
  const layout = { ...layoutOf(facts, iteration, operands), prefetchable, usesFastMath };
  const sizes = outer.length > 0 ? [elements, row.size] : [elements];
  const blocks = Math.ceil(elements / (width * elementThreads));
  addStrides(kernel, iteration, layout.inner, sizes);
  return {
    key: `${width}${access}${keyOf(layout)}`,
    ...{ sizes, blocks },
    print: () => printElementKernel(kernel, { ...layout, width, access }),
    member: { blocks, print: (name) => printElementFunction(kernel, { ...layout, width, access }, name) },
  };
}

/**
 * Rows up to these lengths take at most a warp, or a block of 256 threads; longer rows take a block of 1024. The order of a row's sum
 * follows from them, so they are the same on every device.
 */
const maxWarpRow = 1024;
const maxSmallBlockRow = 8192;
/**
 * Bytes of a row's inputs that a thread may keep in registers: 96 registers in blocks of 128 threads, 32 in blocks of
 * 256. In blocks of 1024 threads, 16 of a thread's 64 registers. Measured on an H200 (`bench/gpu/compiled.ts`): more of
 * them spill.
 */
function maxCachedBytes(lanes: number): number {
  if (lanes <= 32) return 384;
  return lanes <= 256 ? 128 : 64;
}

function reducingConfig(
  kernel: RowKernel,
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
  { prefetchable, device, usesFastMath = false, keepsColumnOrder = true, columnSums }: RowOptions,
): RowConfig {
  const { row, rows } = iteration;
  requireCountable(kernel, rows, "rows");
  requireCountable(kernel, row.size, "elements in a row");
  const access = row.size % vectorWidth === 0 ? "vector" : "scalar";
  const hasAlignedRows = access === "scalar" && areVectorised(facts, iteration, operands);
  const plain = {
    ...{ ...layoutOf(facts, iteration, operands), prefetchable, usesFastMath },
    ...(hasAlignedRows && { hasAlignedRows }),
  };
  const layout = access === "vector" ? vectorLayout(plain, facts, iteration, operands) : plain;
  const sharesCalls = access === "vector" && haveWholeCalls(facts, iteration, operands);
  const rowKey = `${access}${hasAlignedRows ? " aligned " : ""}${sharesCalls ? " calls " : ""}${keyOf(layout)}`;
  const lanes = lanesOf(row.size);
  const rowVectors = Math.max(1, Math.ceil(row.size / (vectorWidth * lanes)));
  const bytes = cachedBytesOf(facts, layout, rowVectors);
  const vectors = bytes <= maxCachedBytes(lanes) ? rowVectors : 0;
  const changes = changeConditionOf(kernel, iteration, operands);
  const cached = {
    ...{ lanes, vectors, cachedBytes: vectors === 0 ? 0 : bytes, changes },
    ...(sharesCalls && vectors > 1 && { sharesCalls }),
  };
  const sizes = [rows, row.size];
  addStrides(kernel, iteration, layout.inner, sizes);
  if (storesColsums(kernel)) {
    const target = { device: device ?? anyDevice, keepsOrder: keepsColumnOrder };
    const colsums = columnSums ?? columnSumLayout(target, kernel, iteration);
    if (!colsums) throw cannotSum(kernel, iteration);
    // Every row is summed, so none is skipped.
    const constantInputs = colsums.isLoop && colsums.isCached ? constantInputsOf(facts, iteration) : [];
    const own = {
      ...{ vectors: colsums.isCached ? colsums.vectors : 0, lanes: colsums.lanes },
      ...{ changes: undefined, constantInputs, sharesCalls: sharesCalls && colsums.vectors > 1 },
    };
    return {
      key: `${literalKey(colsums)}${rowKey} colsums ${constantInputs}`,
      ...{ sizes, blocks: colsums.blocks * colsums.chunks },
      print: () => printReducingKernel(kernel, { ...layout, access, ...cached, ...own, colsums }),
    };
  }
  // Of a row that stays unchanged, nothing would be read again.
  const canShare = vectors === 0 && !changes && device;
  const isWide = usesFastMath && vectors === 0 && lanes > warpSize && areWide(facts, iteration, operands);
  const width = isWide ? wideVectorWidth : vectorWidth;
  const shared = canShare
    ? sharedVectorsOf(device, kernel, { ...layout, ...cached, access, width }, row.size)
    : undefined;
  return {
    key: `${lanes} ${vectors}${isWide ? " wide " : ""}${rowKey}${changes ? " skip" : ""}${shared ? ` shared ${literalKey(shared)}` : ""}`,
    sizes,
    blocks: Math.ceil(rows / rowsPerBlock(lanes)),
    print: () =>
      printReducingKernel(kernel, { ...layout, access, width, ...cached, ...(shared && { shared }) }),
    ...(canReduceWith(comboThreads, lanes) && {
      member: {
        blocks: Math.ceil(rows / rowsPerBlock(lanes, comboThreads)),
        print: (name) => printReducingFunction(kernel, { ...layout, access, ...cached }, comboThreads, name),
      },
    }),
  };
}

/** A kernel of one row as a device function. */
export interface RowFunction {
  /** Identifies the code, except for its kernel and threads. */
  readonly key: string;
  /** The arguments after the operands, before the scalars. */
  readonly sizes: readonly number[];
  /** Bytes of the row that a thread keeps in registers. */
  readonly cachedBytes: number;
  print(name: string): BlockFunction;
}

/**
 * A reduction over one row as a device function for blocks of so many threads, each of which computes the whole row. All of them store the
 * output `own`; the others are stored by the block that is called with `storesAll`. The order of sums depends on the threads. Undefined if
 * a block would have to read what another one stores.
 */
export function cudaRowFunction(
  kernel: RowKernel,
  iteration: Iteration,
  operands: readonly Storage[],
  { threads, own, usesFastMath }: Pick<RowOptions, "usesFastMath"> & { threads: number; own: number },
): RowFunction | undefined {
  const facts = factsOf(kernel);
  const { row, rows } = iteration;
  const isOneRow = rows === 1 && iteration.outer.length === 0 && row.size % vectorWidth === 0;
  const isReduction = !isThreadLocal(facts, iteration) && !storesColsums(kernel) && threads > warpSize;
  if (!isOneRow || !isReduction || kernel.outputs.some(({ per }) => per === "row")) return undefined;
  const plain = { ...layoutOf(facts, iteration, operands), ...(usesFastMath && { usesFastMath }) };
  const layout = vectorLayout(plain, facts, iteration, operands);
  const vectors = Math.ceil(row.size / (vectorWidth * threads));
  const cachedBytes = cachedBytesOf(facts, layout, vectors);
  // Stored values are read again from registers.
  if ([...layout.aliases.values()].includes("mixed") || facts.readsAtIndex) return undefined;
  const others = kernel.outputs.flatMap((_, output) => (output === own ? [] : [output]));
  const storedIf = new Map(others.map((output) => [output, "storesAll"]));
  const sizes = [rows, row.size];
  addStrides(kernel, iteration, layout.inner, sizes);
  const reducing = { ...layout, access: "vector", lanes: threads, vectors, cachedBytes, storedIf } as const;
  return {
    ...{ key: `${keyOf(layout)} own ${own}`, sizes, cachedBytes },
    print: (name) => printReducingFunction(kernel, reducing, threads, name),
  };
}

/**
 * The part of a long row that a block keeps in shared memory for its later passes. Blocks stay as many as without: while some wait for
 * memory, others compute. All of their rows together are often larger than the L2 cache, and the rest is not.
 */
function sharedVectorsOf(
  device: DeviceInfo,
  kernel: RowKernel,
  layout: ReducingLayout,
  elements: number,
): SharedVectors | undefined {
  const { inner, aliases, interleaved = [], lanes, width = vectorWidth } = layout;
  if (lanes <= warpSize) return undefined;
  const { bytes } = factsOf(kernel);
  const inputs = inputsOfSeveralPasses(kernel, usesOnlineSoftmax(layout)).filter(
    (input) =>
      kernel.inputs[input] !== "draw" &&
      inner[input] !== "none" &&
      (aliases.get(input) ?? "none") === "none" &&
      !interleaved.some((group) => group.includes(input)),
  );
  const vectorBytes = inputs.reduce((sum, input) => sum + width * (bytes[input] ?? 0), 0);
  if (vectorBytes === 0) return undefined;
  const available = residentSharedBytes(device, lanes, reductionBytes(kernel));
  const rowVectors = Math.ceil(elements / (width * lanes));
  const vectors = Math.min(rowVectors, Math.floor(available / (lanes * vectorBytes)));
  if (vectors === 0) return undefined;
  return {
    ...{ inputs, vectors, isWholeRow: vectors === rowVectors, bytes: vectors * lanes * vectorBytes },
    residentBlocks: residentBlocksOf(device, lanes),
  };
}

/** The inputs that vary along a row and are the same in every row, such as a norm's gain. */
function constantInputsOf(
  { isReadDirectly, dtypes }: RowFacts,
  { row, outer }: Iteration,
): readonly number[] {
  return isReadDirectly.flatMap((isRead, input) => {
    const isSame = outer.every(({ strides }) => strides[input] === 0);
    return isRead && isSame && dtypes[input] !== "draw" && innerStrideOf(row, input) !== "none"
      ? [input]
      : [];
  });
}

/** True if there are draws, and each row of them begins with a new Philox call. */
function haveWholeCalls(facts: RowFacts, iteration: Iteration, operands: readonly Storage[]): boolean {
  const draws = facts.dtypes.flatMap((dtype, input) => (dtype === "draw" ? [input] : []));
  return (
    draws.length > 0 &&
    draws.every(
      (input) =>
        innerStrideOf(iteration.row, input) === "unit" &&
        isAligned(input, facts, iteration, operands, numbersOfCall),
    )
  );
}

/** An unknown device has as many SMs as a kernel with column sums has blocks at least. */
const anyDevice: ColumnSumTarget["device"] = { parallelism: mediumPartials };

/** How a row kernel computes its column sums; undefined if it cannot. No element may be read at an index. */
export function columnSumLayout(
  target: ColumnSumTarget,
  kernel: RowKernel,
  iteration: Iteration,
): ColumnSumLayout | undefined {
  return columnSumLayouts(target, kernel, iteration)[0];
}

/** All ways to compute them, that one first. */
export function columnSumLayouts(
  target: ColumnSumTarget,
  kernel: RowKernel,
  iteration: Iteration,
): readonly ColumnSumLayout[] {
  return columnSumLayoutsOf(target, kernel, iteration, lanesOf(iteration.row.size));
}

function cannotSum({ name }: RowKernel, { rows, row }: Iteration): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${name}" outputs column sums of ${rows} rows of ${row.size} elements, which no column-sum layout supports. If columnSumLayout is undefined, use a column kernel.`,
    { numbers: { rows, elements: row.size } },
  );
}

/** Threads per row. */
function lanesOf(length: number): number {
  if (length > maxSmallBlockRow) return 1024;
  if (length > maxWarpRow) return 256;
  let lanes = 1;
  while (lanes * vectorWidth < length && lanes < 32) lanes *= 2;
  return lanes;
}

/** The bytes of `vectors` vectors of every input that varies along the row. */
function cachedBytesOf(facts: RowFacts, { inner }: Pick<RowLayout, "inner">, vectors: number): number {
  let bytes = 0;
  for (const [input, isRead] of facts.isReadDirectly.entries()) {
    if (!isRead || inner[input] === "none") continue;
    bytes +=
      vectors * vectorWidth * (facts.dtypes[input] === "draw" ? drawnBytes : (facts.bytes[input] ?? 0));
  }
  return bytes;
}

/** The layout of rows of whole vectors: an unaligned operand is accessed as a strided one, with stride 1. */
function vectorLayout(
  layout: RowLayout,
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
): RowLayout {
  const inner = layout.inner.map((inner, operand) =>
    inner === "unit" && !isAligned(operand, facts, iteration, operands) ? "any" : inner,
  );
  return { ...layout, inner, interleaved: interleavedIn(inner, facts, iteration, operands) };
}

/** Groups of interleaved inputs: each begins one element after the previous one, with a stride over all of them. */
function interleavedIn(
  inner: readonly InnerStride[],
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
): readonly (readonly number[])[] {
  const { isReadDirectly } = facts;
  const interleaved: number[][] = [];
  for (const [first, isRead] of isReadDirectly.entries()) {
    const stride = iteration.row.strides[first] ?? 0;
    if (!isRead || inner[first] !== "any" || stride < 2 || stride > vectorWidth) continue;
    if (facts.dtypes[first] === "draw") continue;
    if (!isAligned(first, facts, iteration, operands)) continue;
    const inputs = [first];
    for (let distance = 1; distance < stride; distance++) {
      const next = isReadDirectly.findIndex(
        (isCandidate, input) => isCandidate && follows(input, first, distance, facts, iteration, operands),
      );
      if (next >= 0) inputs.push(next);
    }
    if (inputs.length === stride) interleaved.push(inputs);
  }
  return interleaved;
}

/** True if an input has the strides of another one and begins `distance` elements after it. */
function follows(
  input: number,
  first: number,
  distance: number,
  { dtypes, bytes }: RowFacts,
  { row, outer }: Iteration,
  operands: readonly Storage[],
): boolean {
  const start = operands[first]?.span.address ?? 0;
  return (
    operands[input]?.span.address === start + distance * (bytes[first] ?? 0) &&
    dtypes[input] === dtypes[first] &&
    row.strides[input] === row.strides[first] &&
    outer.every(({ strides }) => strides[input] === strides[first])
  );
}

function layoutOf(facts: RowFacts, iteration: Iteration, operands: readonly Storage[]): RowLayout {
  const { outer, row } = iteration;
  const inner: InnerStride[] = [];
  for (let operand = 0; operand < operands.length; operand++) inner.push(innerStrideOf(row, operand));
  return { outerRank: outer.length, inner, aliases: aliasesOf(facts, iteration, operands) };
}

const letters: Readonly<Record<InnerStride, string>> = { unit: "u", none: "n", any: "a" };

function keyOf({
  outerRank,
  inner,
  aliases,
  interleaved = [],
  prefetchable,
  usesFastMath,
}: RowLayout): string {
  let key = `${usesFastMath ? " fast " : ""}${outerRank}`;
  for (const stride of inner) key += letters[stride];
  for (const alias of aliases.values()) key += ` ${alias}`;
  for (const inputs of interleaved) key += ` ${inputs}`;
  return prefetchable ? `${key} prefetch ${prefetchable.map(Number).join("")}` : key;
}

const noAliases: ReadonlyMap<number, Alias> = new Map();

/** How the inputs that are read after a store alias the outputs. */
function aliasesOf(
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
): ReadonlyMap<number, Alias> {
  const { readAfterStores } = facts;
  if (readAfterStores.length === 0) return noAliases;
  return new Map(readAfterStores.map((input) => [input, aliasOf(input, facts, iteration, operands)]));
}

function aliasOf(
  input: number,
  facts: RowFacts,
  { outer, row }: Iteration,
  operands: readonly Storage[],
): Alias {
  const inputs = facts.isReadDirectly.length;
  const span = operands[input]?.span;
  let alias: Alias = "none";
  for (let operand = inputs; operand < operands.length; operand++) {
    const other = operands[operand]?.span;
    if (!span || !other || !overlaps(span, other)) continue;
    const isSame =
      span.address === other.address &&
      facts.dtypes[input] === facts.dtypes[operand] &&
      row.strides[input] === row.strides[operand] &&
      outer.every(({ strides }) => strides[input] === strides[operand]);
    if (!isSame || alias !== "none") return "mixed";
    alias = operand - inputs;
  }
  return alias;
}

/** Adds the launch parameters after the counts: the sizes of the outer axes but the first, and every operand's strides. */
function addStrides(
  kernel: RowKernel,
  { outer, row }: Iteration,
  inner: readonly InnerStride[],
  sizes: number[],
): void {
  for (let axis = 1; axis < outer.length; axis++) sizes.push(outer[axis]?.size ?? 1);
  for (let operand = 0; operand < inner.length; operand++) {
    for (const { strides } of outer) sizes.push(requireStride(kernel, strides[operand] ?? 0));
    if (inner[operand] === "any") sizes.push(requireStride(kernel, row.strides[operand] ?? 0));
  }
}
