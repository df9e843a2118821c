/**
 * From an iteration over operands in a GPU's memory to what a printed row kernel follows from and takes. Whether packs
 * are moved as a whole, and which inputs are stored over, is decided here, where addresses are known.
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
import { overlaps } from "../../../units/index.js";
import type { LaunchConfig } from "../../launch-config.js";
import {
  type ColumnPartialsLayout,
  columnPartialCount,
  columnPartialsOf,
  fitsIn,
  storesColsums,
} from "./column-partials.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { elementThreads, printElementFunction, printElementKernel } from "./element-kernel.js";
import { requireCountable, requireStep } from "./limits.js";
import { isReducedBy, printReducingFunction, printReducingKernel, rowsPerBlock } from "./row-kernel.js";
import type { Alias, RowLayout } from "./row-operands.js";

/** Elements of a pack, and the alignment that moves the largest of them as a whole. */
const vectorWidth = 4;
const vectorAlignment = 16;

/** A form, and the same as a function of blocks with so many threads, of which a launch may run several. */
export interface RowConfig extends LaunchConfig {
  /** Nothing where blocks have to have more threads. */
  readonly inGroup?: { readonly blocks: number; print(name: string): BlockFunction };
}

/** Threads of a block that runs one of several kernels. */
export const groupThreads = elementThreads;

export function cudaRowConfig(
  kernel: RowKernel,
  iteration: Iteration,
  operands: readonly Storage[],
  early?: readonly boolean[],
): RowConfig {
  const facts = factsOf(kernel);
  const make = isApart(facts, iteration) ? elementConfig : reducingConfig;
  return make(kernel, facts, iteration, operands, early);
}

/** A stage that reads others' elements after a store needs the row's threads to wait for each other. */
function isApart(facts: RowFacts, { kind }: Iteration): boolean {
  return facts.isElementwise && (kind === "elements" || !facts.readsAcrossStores);
}

/** Does a form have a function for groups? */
export function hasGroupConfig(kernel: RowKernel, iteration: Iteration): boolean {
  if (storesColsums(kernel)) return false;
  return isApart(factsOf(kernel), iteration) || isReducedBy(groupThreads, lanesOf(iteration.row.size));
}

function elementConfig(
  kernel: RowKernel,
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
  early: readonly boolean[] | undefined,
): RowConfig {
  const { outer, row, elements } = iteration;
  requireCountable(kernel, elements, "elements");
  const isEven = row.size % vectorWidth === 0;
  // What stands behind the end must not be indexed with.
  const mayHaveTail = outer.length === 0 && row.size > vectorWidth && !facts.readsAtIndex;
  const isPacked = (isEven || mayHaveTail) && arePacked(facts, iteration, operands);
  const width = isPacked ? vectorWidth : 1;
  const moves = isPacked && !isEven ? "tailed" : "whole";
  const layout = { ...layoutOf(facts, iteration, operands), early };
  const sizes = outer.length > 0 ? [elements, row.size] : [elements];
  const blocks = Math.ceil(elements / (width * elementThreads));
  addSteps(kernel, iteration, layout.inner, sizes);
  return {
    key: `${width}${moves}${keyOf(layout)}`,
    ...{ sizes, blocks },
    print: () => printElementKernel(kernel, { ...layout, width, moves }),
    inGroup: { blocks, print: (name) => printElementFunction(kernel, { ...layout, width, moves }, name) },
  };
}

/** Rows up to this length take a warp or a part of it; longer ones a block, and the longest a large block. */
const longestWarpRow = 1024;
const longestSmallBlockRow = 8192;
/** What of a row's inputs a thread may hold in its registers: the more threads a block has, the fewer are left for each. */
function maxHeldBytes(lanes: number): number {
  if (lanes <= 32) return 384;
  return lanes <= 256 ? 128 : 64;
}

function reducingConfig(
  kernel: RowKernel,
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
  early: readonly boolean[] | undefined,
): RowConfig {
  const { row, rows } = iteration;
  requireCountable(kernel, rows, "rows");
  requireCountable(kernel, row.size, "elements in a row");
  const moves = row.size % vectorWidth === 0 ? "whole" : "single";
  const plain = { ...layoutOf(facts, iteration, operands), early };
  const layout = moves === "whole" ? packedLayout(plain, facts, iteration, operands) : plain;
  const lanes = lanesOf(row.size);
  const all = Math.max(1, Math.ceil(row.size / (vectorWidth * lanes)));
  const bytes = heldBytes(facts, layout, all);
  const packs = bytes <= maxHeldBytes(lanes) ? all : 0;
  const held = { lanes, packs, heldBytes: packs === 0 ? 0 : bytes };
  const sizes = [rows, row.size];
  addSteps(kernel, iteration, layout.inner, sizes);
  if (storesColsums(kernel)) {
    const sums = sumsIn(kernel, iteration);
    if (!sums) throw cannotSum(kernel, iteration);
    return {
      key: `${packs}${moves}${keyOf(layout)} sums ${sums.turns}`,
      ...{ sizes, blocks: columnPartialCount },
      print: () => printReducingKernel(kernel, { ...layout, moves, ...held, sums }),
    };
  }
  return {
    key: `${lanes} ${packs}${moves}${keyOf(layout)}`,
    sizes,
    blocks: Math.ceil(rows / rowsPerBlock(lanes)),
    print: () => printReducingKernel(kernel, { ...layout, moves, ...held }),
    ...(isReducedBy(groupThreads, lanes) && {
      inGroup: {
        blocks: Math.ceil(rows / rowsPerBlock(lanes, groupThreads)),
        print: (name) => printReducingFunction(kernel, { ...layout, moves, ...held }, groupThreads, name),
      },
    }),
  };
}

/** Can a GPU add up columns in a kernel of rows? A row takes a warp, and no others' elements. */
export function canSumColumns(device: DeviceInfo, kernel: RowKernel, iteration: Iteration): boolean {
  const sums = device.computeCapability === undefined ? undefined : sumsIn(kernel, iteration);
  return sums !== undefined && fitsIn(device, sums);
}

function sumsIn(kernel: RowKernel, iteration: Iteration): ColumnPartialsLayout | undefined {
  const { kind, row } = iteration;
  const facts = factsOf(kernel);
  if (kind !== "rows" || lanesOf(row.size) !== 32 || facts.readsAtIndex) return undefined;
  const packs = Math.ceil(row.size / (vectorWidth * 32));
  const inner = row.strides.map((_, operand) => innerStrideOf(row, operand));
  return columnPartialsOf(kernel, iteration, { packs, heldBytes: heldBytes(facts, { inner }, packs) });
}

function cannotSum({ name }: RowKernel, { rows, row }: Iteration): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${name}" adds up columns of ${rows} rows of ${row.size} elements, which kernels of rows can't. Ask canSumColumns first.`,
    { numbers: { rows, elements: row.size } },
  );
}

/** How many threads share a row. */
function lanesOf(length: number): number {
  if (length > longestSmallBlockRow) return 1024;
  if (length > longestWarpRow) return 256;
  let lanes = 1;
  while (lanes * vectorWidth < length && lanes < 32) lanes *= 2;
  return lanes;
}

/** What so many packs of all inputs come to. */
function heldBytes(facts: RowFacts, { inner }: Pick<RowLayout, "inner">, packs: number): number {
  let bytes = 0;
  for (const [input, isRead] of facts.isReadPlainly.entries()) {
    if (isRead && inner[input] !== "none") bytes += packs * vectorWidth * (facts.bytes[input] ?? 0);
  }
  return bytes;
}

/** Does every operand that moves, and is read or stored in its place, lie so that whole packs can be moved? */
function arePacked(facts: RowFacts, iteration: Iteration, operands: readonly Storage[]): boolean {
  for (let operand = 0; operand < operands.length; operand++) {
    const inner = innerStrideOf(iteration.row, operand);
    if (inner === "none" || facts.isReadPlainly[operand] === false) continue;
    if (inner === "any" || !isAligned(operand, facts, iteration, operands)) return false;
  }
  return true;
}

/** Does every row of an operand begin where packs begin? */
function isAligned(
  operand: number,
  facts: RowFacts,
  { outer }: Iteration,
  operands: readonly Storage[],
): boolean {
  const alignment = Math.min(vectorAlignment, vectorWidth * (facts.bytes[operand] ?? 1));
  const address = operands[operand]?.span.address ?? 1;
  if (address % alignment !== 0) return false;
  for (const { strides } of outer) if ((strides[operand] ?? 0) % vectorWidth !== 0) return false;
  return true;
}

/** The layout of rows of whole packs: an operand that lies askew takes steps, of one element. */
function packedLayout(
  layout: RowLayout,
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
): RowLayout {
  const inner = layout.inner.map((own, operand) =>
    own === "unit" && !isAligned(operand, facts, iteration, operands) ? "any" : own,
  );
  return { ...layout, inner, interleaved: interleavedIn(inner, facts, iteration, operands) };
}

/** Inputs that take turns in memory: each stands one element behind the one before, and steps over all of them. */
function interleavedIn(
  inner: readonly InnerStride[],
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
): readonly (readonly number[])[] {
  const { isReadPlainly } = facts;
  const interleaved: number[][] = [];
  for (const [first, isRead] of isReadPlainly.entries()) {
    const step = iteration.row.strides[first] ?? 0;
    if (!isRead || inner[first] !== "any" || step < 2 || step > vectorWidth) continue;
    if (!isAligned(first, facts, iteration, operands)) continue;
    const inputs = [first];
    for (let place = 1; place < step; place++) {
      const next = isReadPlainly.findIndex(
        (isGood, input) => isGood && standsBehind(input, first, place, facts, iteration, operands),
      );
      if (next >= 0) inputs.push(next);
    }
    if (inputs.length === step) interleaved.push(inputs);
  }
  return interleaved;
}

/** Does an input step as another one does, so many elements behind it? */
function standsBehind(
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

function keyOf({ outerRank, inner, aliases, interleaved = [], early }: RowLayout): string {
  let key = `${outerRank}`;
  for (const one of inner) key += letters[one];
  for (const alias of aliases.values()) key += ` ${alias}`;
  for (const inputs of interleaved) key += ` ${inputs}`;
  return early ? `${key} early ${early.map(Number).join("")}` : key;
}

const noAliases: ReadonlyMap<number, Alias> = new Map();

/** Where the inputs lie that are read after something was stored. */
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
  const inputs = facts.isReadPlainly.length;
  const own = operands[input]?.span;
  let alias: Alias = "apart";
  for (let operand = inputs; operand < operands.length; operand++) {
    const other = operands[operand]?.span;
    if (!own || !other || !overlaps(own, other)) continue;
    const isSame =
      own.address === other.address &&
      facts.dtypes[input] === facts.dtypes[operand] &&
      row.strides[input] === row.strides[operand] &&
      outer.every(({ strides }) => strides[input] === strides[operand]);
    if (!isSame || alias !== "apart") return "mixed";
    alias = operand - inputs;
  }
  return alias;
}

/** Adds the numbers behind the counts: the outer axes' sizes but the first, and every operand's steps. */
function addSteps(
  kernel: RowKernel,
  { outer, row }: Iteration,
  inner: readonly InnerStride[],
  sizes: number[],
): void {
  for (let axis = 1; axis < outer.length; axis++) sizes.push(outer[axis]?.size ?? 1);
  for (let operand = 0; operand < inner.length; operand++) {
    for (const { strides } of outer) sizes.push(requireStep(kernel, strides[operand] ?? 0));
    if (inner[operand] === "any") sizes.push(requireStep(kernel, row.strides[operand] ?? 0));
  }
}
