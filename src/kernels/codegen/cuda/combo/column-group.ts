/**
 * Several column kernels as one launch, or as two: what the blocks of the first leave of columns with many rows, the second joins.
 * One kernel alone may fill a small part of a GPU; the layout here is for all of them, and reads rows by runs of neighbouring
 * columns. It changes no bits: those follow from the rows alone.
 */

import type { ColumnKernel } from "../../../../ir/index.js";
import { dtypes, kernelKey } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { literalKey } from "../../../../units/index.js";
import type { Columns } from "../../../launch-config.js";
import { columnPartials, columnSizes, partialsOfMany } from "../column-config.js";
import {
  cachedPartials,
  combineColumns,
  printColumnCombine,
  printColumnStep,
  type StepLayout,
  sharedBy,
  stepThreads,
  unitBytes,
} from "../split-column-kernel.js";
import { type ComboLaunch, maxArguments, runCombo, type Task } from "./combo-kernel.js";

export interface ColumnGroupMember extends ColumnDesc {
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
}

/** Blocks on a multiprocessor: some read while others join what they have read. They share its registers. */
const blocksAtOnce = 2;
const options = { threads: stepThreads, blocksAtOnce };
/** The threads beside each other that read a row: of many columns, and of few rows, which are soon read. */
const [maxLanes, maxLanesOfFew, minLanes] = [32, 8, 8];
/** What one load brings at most. */
const loadBytes = 16;
const maxWidth = 8;
/** So many elements are soon read. */
const shortElements = 12 * 1024;
/** Of a thread's registers: for partial results, and for what is on its way from memory. */
const [keptBytes, loadedBytes] = [128, 192];

/** A column kernel and what it reduces: where that lies is not known yet. */
interface ColumnDesc extends Columns {
  readonly kernel: ColumnKernel;
}

/** Can a launch take so many arguments, whichever of the kernels' two steps it makes? */
export function areColumnArgumentsFew(kernels: readonly ColumnKernel[]): boolean {
  return sumOf(kernels, (one) => Math.max(argumentsOf(one), combineArguments(one))) <= maxArguments;
}

function argumentsOf({ inputs, outputs, scalars }: ColumnKernel): number {
  return 2 * inputs.length + outputs.length + 3 + scalars.length + 1;
}

function combineArguments({ outputs }: ColumnKernel): number {
  return 5 * outputs.length;
}

/** The memory that blocks leave partial results in, in bytes. */
export function columnScratchBytes(members: readonly ColumnDesc[]): number {
  return unitBytes * sumOf(members, (member) => sumOf(unitsOf(member), (units) => units));
}

/** What each value of a kernel takes of that memory, in units. */
function unitsOf(member: ColumnDesc): readonly number[] {
  const { kernel, columns } = member;
  if (setsOf(member) === 1) return kernel.values.map(() => 0);
  return kernel.values.map(({ type }) => (columns * dtypes[type].bytes) / dtypes.f32.bytes);
}

/** How many blocks share a column: of many rows several, unless one has soon read all of them, and registers for what it makes of them. */
function setsOf({ kernel, rows, columns }: ColumnDesc): number {
  const isShort = rows * columns <= shortElements && bytesOfValues(kernel) <= dtypes.f32.bytes;
  return columnPartials(rows) === partialsOfMany && !isShort ? sharedBy : 1;
}

function bytesOfValues({ values }: ColumnKernel): number {
  return sumOf(values, ({ type }) => dtypes[type].bytes);
}

interface Placed extends ColumnGroupMember {
  readonly layout: StepLayout;
  readonly blocks: number;
  /** Where its values' partial results are, in units. */
  readonly units: readonly number[];
  readonly text: string;
  /** The bytes that a block reads. */
  readonly work: number;
}

/** Column kernels whose first step an earlier launch makes, and where it leaves what is to be joined. */
export interface PartialColumns {
  readonly members: readonly ColumnGroupMember[];
  readonly scratch: Storage;
}

/**
 * The launches, one behind the other. `scratch`: as much as `columnScratchBytes` says; none where that is nothing. `begun`: what else
 * is to be joined.
 */
export function columnGroupConfig(
  members: readonly ColumnGroupMember[],
  scratch: Storage | undefined,
  begun?: PartialColumns,
): readonly ComboLaunch[] {
  const placed = inOrder(place(members));
  const steps = placed.map((one) => stepOf(one, scratch));
  const own = placed.flatMap((one) => combinesOf(one, scratch));
  const joins = begun ? place(begun.members).flatMap((one) => combinesOf(one, begun.scratch)) : [];
  joins.push(...own);
  joins.sort((a, b) => a.text.localeCompare(b.text));
  const all = own.length === 0 ? [[...steps, ...joins]] : [steps, joins];
  return all.map((tasks) => {
    const entry = tasks === joins ? "hf_columns_combined" : "hf_columns_combo";
    return runCombo(tasks, { ...options, entry });
  });
}

/** The first step alone. */
export function splitColumnConfig({ members, scratch }: PartialColumns): ComboLaunch {
  return runCombo(
    inOrder(place(members)).map((one) => stepOf(one, scratch)),
    { ...options, entry: "hf_columns_partials" },
  );
}

/** Do blocks leave something of a column of so many rows to a second step? */
export function isSplitReduction(member: ColumnDesc): boolean {
  return setsOf(member) > 1;
}

function stepOf(member: Placed, scratch: Storage | undefined): Task {
  const { kernel, layout, units, operands, scalars = [], text, blocks } = member;
  const inputs = operands.slice(0, kernel.inputs.length);
  const results = layout.sets > 1 ? [needed(scratch), ...units] : operands.slice(kernel.inputs.length);
  return {
    ...{ name: kernel.name, text, blocks },
    arguments: [...inputs, ...results, ...columnSizes(kernel, member), ...scalars],
    print: (name) => printColumnStep(kernel, layout, name),
  };
}

/** What is left to do of a kernel's values. */
function combinesOf(
  { kernel, columns, layout, units, operands }: Placed,
  scratch: Storage | undefined,
): Task[] {
  if (layout.sets === 1) return [];
  const { op, places, inputs, outputs } = kernel;
  return kernel.values.flatMap(({ type }, index) => {
    const output = operands[inputs.length + index];
    if (!output) return [];
    const join = { op, type, dtype: outputs[index] ?? "f32", places };
    return {
      name: `${kernel.name} joined`,
      text: Object.values({ ...join, places: literalKey(places ?? {}) }).join(),
      blocks: Math.ceil(columns / combineColumns),
      arguments: [output, needed(scratch), units[index] ?? 0, columns],
      print: (name: string) => printColumnCombine(join, name),
    };
  });
}

function needed(scratch: Storage | undefined): Storage {
  if (!scratch)
    throw new Error("Column kernels with two steps were given no memory for what is between them.");
  return scratch;
}

function place(members: readonly ColumnGroupMember[]): readonly Placed[] {
  let unit = 0;
  return members.map((member) => {
    const { kernel, rows, columns, strides } = member;
    const layout = layoutOf(member);
    const { sets, parts, lanes, width, turns } = layout;
    const units = unitsOf(member).map((own) => {
      unit += own;
      return unit - own;
    });
    const steps = layout.strides.map((stride) => (stride === "unit" ? "u" : "n")).join("");
    const bytes = sumOf([...kernel.inputs.entries()], ([input, dtype]) =>
      strides[input]?.column === "unit" ? lanes * width * dtypes[dtype].bytes : dtypes[dtype].bytes,
    );
    return {
      ...{ ...member, layout, units, work: (rows / sets) * bytes },
      blocks: sets * Math.ceil(columns / (lanes * width)),
      text: `${kernelKey(kernel)}/${sets}/${parts}/${lanes}/${width}/${turns}${steps}`,
    };
  });
}

function layoutOf(member: ColumnGroupMember): StepLayout {
  const { kernel, rows, columns, strides } = member;
  const sets = setsOf(member);
  const parts = columnPartials(rows) / sets;
  const valueBytes = bytesOfValues(kernel);
  let width = widthOf(member);
  let lanes = lanesOf(columns / width, sets);
  // With fewer columns a thread has fewer partial results.
  while (width > 1 && cachedPartials({ parts, lanes }) * width * valueBytes > keptBytes) {
    width /= 2;
    lanes = lanesOf(columns / width, sets);
  }
  const loaded = sumOf([...kernel.inputs.entries()], ([input, dtype]) =>
    strides[input]?.column === "unit" ? width * dtypes[dtype].bytes : dtypes[dtypes[dtype].compute].bytes,
  );
  const most = Math.max(
    1,
    Math.floor(loadedBytes / (cachedPartials({ parts, lanes }) * Math.max(1, loaded))),
  );
  const strideRows = Math.ceil(rows / (parts * sets));
  const turns = Math.ceil(strideRows / Math.ceil(strideRows / most)) || 1;
  return { strides: strides.map(({ column }) => column), sets, parts, lanes, width, turns };
}

/** How many neighbouring columns a thread reads at once: those of every input lie so, in every row, and no column is left over. */
function widthOf({ kernel, columns, strides, operands }: ColumnGroupMember): number {
  const isFit = (width: number): boolean =>
    columns % width === 0 &&
    kernel.inputs.every((dtype, input) => {
      const { row = 1, column = "unit" } = strides[input] ?? {};
      const bytes = width * dtypes[dtype].bytes;
      const address = operands[input]?.span.address ?? 1;
      return column === "none" || (bytes <= loadBytes && row % width === 0 && address % bytes === 0);
    });
  let width = maxWidth;
  while (width > 1 && !isFit(width)) width /= 2;
  return width;
}

function lanesOf(count: number, sets: number): number {
  const most = sets > 1 ? maxLanes : maxLanesOfFew;
  let lanes = minLanes;
  while (lanes < count && lanes < most) lanes *= 2;
  return lanes;
}

/** What takes longest comes first, so that no block begins a long work when the others end; those of one text stay together. */
function inOrder(placed: readonly Placed[]): readonly Placed[] {
  const longest = new Map<string, number>();
  for (const { text, work } of placed) longest.set(text, Math.max(work, longest.get(text) ?? 0));
  const longestOf = ({ text }: Placed): number => longest.get(text) ?? 0;
  return [...placed].sort(
    (a, b) => longestOf(b) - longestOf(a) || a.text.localeCompare(b.text) || b.work - a.work,
  );
}

function sumOf<T>(list: readonly T[], measure: (one: T) => number): number {
  return list.reduce((sum, one) => sum + measure(one), 0);
}
