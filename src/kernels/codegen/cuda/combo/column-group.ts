/**
 * Groups of column kernels in one combo launch, or in two: columns with many rows are reduced in two phases (partials, then combine). A
 * single column kernel often fills a small part of a GPU. The layouts here are for groups and read vectors of neighbouring columns. They do
 * not change the bits of a result: these follow from the number of rows.
 */

import type { ColumnKernel } from "../../../../ir/index.js";
import { dtypes, kernelKey } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { literalKey } from "../../../../units/index.js";
import { launchBytes, maxVectorBytes, registerBytesPerThread } from "../../../cost-model.js";
import type { Columns } from "../../../launch-config.js";
import { columnPartials, columnSizes, maxPartials } from "../column-config.js";
import {
  combineColumns,
  maxRowSplits,
  minRowSplits,
  printColumnCombine,
  printColumnPartials,
  type SplitLayout,
  splitThreads,
  threadPartials,
  unitBytes,
} from "../split-column-kernel.js";
import { type ComboLaunch, type ComboMember, combineMembers, maxArguments } from "./combo-kernel.js";

export interface ColumnGroupMember extends ColumnDesc {
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
}

/** Resident blocks per SM: one loads while the other reduces. */
const blocksPerSm = 2;
const options = { threads: splitThreads, blocksPerSm };
/** Rows are split further until the first phase has so many blocks of this many columns, as long as a block has so many rows. */
const [busyBlocks, busyColumns, minSplitRows] = [256, 128, 512];
/** Threads along a row: a warp for split reductions; fewer for the others, whose few rows need more threads along the column. */
const [maxLanes, maxUnsplitLanes, minLanes] = [32, 8, 8];
const maxWidth = 8;
/** The number of elements that one block reads in the time of a second launch. */
const maxUnsplitElements = launchBytes / dtypes.f32.bytes;
/** The bytes of a thread's registers for partials (a quarter of all) and for loads in flight (three eighths). */
const threadBytes = registerBytesPerThread(splitThreads, blocksPerSm);
const [partialBytes, inFlightBytes] = [threadBytes / 4, (threadBytes * 3) / 8];

/** A column kernel and its rows and columns, without addresses. */
interface ColumnDesc extends Columns {
  readonly kernel: ColumnKernel;
}

/** True if the arguments of either phase fit into one launch. */
export function fitColumnArguments(kernels: readonly ColumnKernel[]): boolean {
  return sumOf(kernels, (kernel) => Math.max(argumentsOf(kernel), combineArguments(kernel))) <= maxArguments;
}

function argumentsOf({ inputs, outputs, scalars }: ColumnKernel): number {
  return 2 * inputs.length + outputs.length + 3 + scalars.length + 1;
}

function combineArguments({ outputs }: ColumnKernel): number {
  return 5 * outputs.length;
}

/** The scratch memory for the partials of the first phase, in bytes. */
export function columnScratchBytes(members: readonly ColumnDesc[]): number {
  return unitBytes * sumOf(members, (member) => sumOf(unitsOf(member), (units) => units));
}

/** The scratch memory of each value of a kernel, in units. */
function unitsOf(member: ColumnDesc): readonly number[] {
  const { kernel, columns } = member;
  const splits = splitsOf(member);
  if (splits === 1) return kernel.values.map(() => 0);
  const perColumn = splits / minRowSplits / dtypes.f32.bytes;
  return kernel.values.map(({ type }) => columns * dtypes[type].bytes * perColumn);
}

/**
 * How many blocks split the rows of a column. One block reduces a short column, if its registers suffice for all partials, and columns in
 * runs, of which there are many.
 */
function splitsOf({ kernel, rows, columns, runs }: ColumnDesc): number {
  if (runs) return 1;
  const isShort = rows * columns <= maxUnsplitElements && bytesOfValues(kernel) <= dtypes.f32.bytes;
  if (columnPartials(rows) < maxPartials || isShort) return 1;
  let splits = minRowSplits;
  const isBusy = (): boolean => splits * Math.ceil(columns / busyColumns) >= busyBlocks;
  while (splits < maxRowSplits && !isBusy() && rows >= minSplitRows * splits) splits *= 2;
  return splits;
}

function bytesOfValues({ values }: ColumnKernel): number {
  return sumOf(values, ({ type }) => dtypes[type].bytes);
}

interface PlannedMember extends ColumnGroupMember {
  readonly layout: SplitLayout;
  readonly blocks: number;
  /** The offsets of its values' partials in the scratch memory, in units. */
  readonly units: readonly number[];
  readonly codeKey: string;
  /** The bytes that a block reads. */
  readonly work: number;
}

/** Column kernels whose first phase runs in an earlier launch, and the scratch memory of their partials. */
export interface PartialColumns {
  readonly members: readonly ColumnGroupMember[];
  readonly scratch: Storage;
}

/**
 * The launches, in order. `scratch` has at least `columnScratchBytes`; it is undefined if that is 0. `earlier`: members whose partials an
 * earlier launch has stored; these launches combine them.
 */
export function columnGroupConfig(
  members: readonly ColumnGroupMember[],
  scratch: Storage | undefined,
  earlier?: PartialColumns,
): readonly ComboLaunch[] {
  const planned = longestFirst(plan(members));
  const firstPhase = planned.map((member) => partialsOf(member, scratch));
  const newCombines = planned.flatMap((member) => combinesOf(member, scratch));
  const secondPhase = earlier
    ? plan(earlier.members).flatMap((member) => combinesOf(member, earlier.scratch))
    : [];
  secondPhase.push(...newCombines);
  secondPhase.sort((a, b) => a.codeKey.localeCompare(b.codeKey));
  const launches = newCombines.length === 0 ? [[...firstPhase, ...secondPhase]] : [firstPhase, secondPhase];
  return launches.map((launchMembers) => {
    const entry = launchMembers === secondPhase ? "hf_columns_combined" : "hf_columns_combo";
    return combineMembers(launchMembers, { ...options, entry });
  });
}

/** The first phase alone. */
export function splitColumnConfig({ members, scratch }: PartialColumns): ComboLaunch {
  return combineMembers(
    longestFirst(plan(members)).map((member) => partialsOf(member, scratch)),
    { ...options, entry: "hf_columns_partials" },
  );
}

/** True if the reduction has two phases. */
export function isSplitReduction(member: ColumnDesc): boolean {
  return splitsOf(member) > 1;
}

function partialsOf(member: PlannedMember, scratch: Storage | undefined): ComboMember {
  const { kernel, layout, units, operands, scalars = [], codeKey, blocks } = member;
  const inputs = operands.slice(0, kernel.inputs.length);
  const results =
    layout.splits > 1 ? [requireScratch(scratch), ...units] : operands.slice(kernel.inputs.length);
  return {
    ...{ name: kernel.name, codeKey, blocks },
    arguments: [...inputs, ...results, ...columnSizes(kernel, member), ...scalars],
    print: (name) => printColumnPartials(kernel, layout, name),
  };
}

/** The second phase of a kernel's values. */
function combinesOf(
  { kernel, columns, layout, units, operands }: PlannedMember,
  scratch: Storage | undefined,
): ComboMember[] {
  if (layout.splits === 1) return [];
  const { op, outputLayout, inputs, outputs } = kernel;
  return kernel.values.flatMap(({ type }, index) => {
    const output = operands[inputs.length + index];
    if (!output) return [];
    const combine = { op, type, dtype: outputs[index] ?? "f32", outputLayout, splits: layout.splits };
    return {
      name: `${kernel.name} combined`,
      codeKey: Object.values({ ...combine, outputLayout: literalKey(outputLayout ?? {}) }).join(),
      blocks: Math.ceil(columns / combineColumns),
      arguments: [output, requireScratch(scratch), units[index] ?? 0, columns],
      print: (name: string) => printColumnCombine(combine, name),
    };
  });
}

function requireScratch(scratch: Storage | undefined): Storage {
  if (!scratch) throw new Error("A two-phase column reduction needs scratch memory for its partials.");
  return scratch;
}

function plan(members: readonly ColumnGroupMember[]): readonly PlannedMember[] {
  let unit = 0;
  return members.map((member) => {
    const { kernel, rows, columns, strides } = member;
    const layout = layoutOf(member);
    const { splits, partials, lanes, width, unroll } = layout;
    const units = unitsOf(member).map((count) => {
      unit += count;
      return unit - count;
    });
    const strideKey = layout.strides.map((stride) => (stride === "unit" ? "u" : "n")).join("");
    const bytes = sumOf([...kernel.inputs.entries()], ([input, dtype]) =>
      strides[input]?.column === "unit" ? lanes * width * dtypes[dtype].bytes : dtypes[dtype].bytes,
    );
    return {
      ...{ ...member, layout, units, work: (rows / splits) * bytes },
      blocks: splits * Math.ceil(columns / (lanes * width)),
      codeKey: `${kernelKey(kernel)}/${splits}/${partials}/${lanes}/${width}/${unroll}${strideKey}${layout.usesFastMath ? "/fast" : ""}`,
    };
  });
}

function layoutOf(member: ColumnGroupMember): SplitLayout {
  const { kernel, rows, columns, strides, usesFastMath = false } = member;
  const splits = splitsOf(member);
  const partials = columnPartials(rows) / splits;
  const valueBytes = bytesOfValues(kernel);
  let width = widthOf(member);
  let lanes = lanesOf(columns / width, splits, partials);
  // A thread with fewer columns has fewer partials; and a block whose rows have few columns has no idle threads along them.
  const isTooWide = (): boolean =>
    threadPartials({ partials, lanes }) * width * valueBytes > partialBytes ||
    (splits > 1 && lanes * width >= 2 * columns);
  while (width > 1 && isTooWide()) {
    width /= 2;
    lanes = lanesOf(columns / width, splits, partials);
  }
  const loaded = sumOf([...kernel.inputs.entries()], ([input, dtype]) =>
    strides[input]?.column === "unit" ? width * dtypes[dtype].bytes : dtypes[dtypes[dtype].compute].bytes,
  );
  const maxUnroll = Math.max(
    1,
    Math.floor(inFlightBytes / (threadPartials({ partials, lanes }) * Math.max(1, loaded))),
  );
  const rowsPerPartial = Math.ceil(rows / (partials * splits));
  const unroll = Math.ceil(rowsPerPartial / Math.ceil(rowsPerPartial / maxUnroll)) || 1;
  const columnStrides = strides.map(({ column }) => column);
  return { strides: columnStrides, splits, partials, lanes, width, unroll, usesFastMath };
}

/** The vector width: neighbouring columns that a thread loads at once. Every row of every input must be aligned for it. */
function widthOf({ kernel, columns, strides, operands }: ColumnGroupMember): number {
  const isAligned = (width: number): boolean =>
    columns % width === 0 &&
    kernel.inputs.every((dtype, input) => {
      const { row = 1, column = "unit" } = strides[input] ?? {};
      const bytes = width * dtypes[dtype].bytes;
      const address = operands[input]?.span.address ?? 1;
      return column === "none" || (bytes <= maxVectorBytes && row % width === 0 && address % bytes === 0);
    });
  let width = maxWidth;
  while (width > 1 && !isAligned(width)) width /= 2;
  return width;
}

/** At least so many that every thread has a partial. */
function lanesOf(count: number, splits: number, partials: number): number {
  const limit = splits > 1 ? maxLanes : maxUnsplitLanes;
  let lanes = Math.max(minLanes, splitThreads / partials);
  while (lanes < count && lanes < limit) lanes *= 2;
  return lanes;
}

/** Longest work first, so that no long block starts last. Members with the same code are neighbours. */
function longestFirst(planned: readonly PlannedMember[]): readonly PlannedMember[] {
  const longest = new Map<string, number>();
  for (const { codeKey, work } of planned) longest.set(codeKey, Math.max(work, longest.get(codeKey) ?? 0));
  const longestOf = ({ codeKey }: PlannedMember): number => longest.get(codeKey) ?? 0;
  return [...planned].sort(
    (a, b) => longestOf(b) - longestOf(a) || a.codeKey.localeCompare(b.codeKey) || b.work - a.work,
  );
}

function sumOf<T>(list: readonly T[], measure: (item: T) => number): number {
  return list.reduce((sum, item) => sum + measure(item), 0);
}
