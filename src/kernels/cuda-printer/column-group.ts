/**
 * Several column kernels as one launch: a block works on one of them, and has its number among that kernel's blocks. One alone
 * may fill a small part of a GPU; the layout here is for all of them. It changes no bits: those follow from the rows alone.
 */

import type { KernelSource, Parameter } from "../../driver/index.js";
import { dtypes } from "../dtypes.js";
import type { ColumnKernel } from "../ir.js";
import type { Columns } from "../launch-form.js";
import { columnParts, columnSizes, columnTurns, sectorColumns } from "./column-form.js";
import { type ColumnFunction, type ColumnLayout, printColumnFunction } from "./column-kernel.js";
import { type PreludeName, preludeOf } from "./prelude.js";

export interface ColumnGroupMember extends Columns {
  readonly kernel: ColumnKernel;
}

/** How a GPU runs column kernels in one launch. */
export interface ColumnGroupForm {
  /** What the printed code follows from, besides the kernels in their order. */
  readonly key: string;
  /** The members in the order in which the code takes them: their operands, their sizes, their scalars. */
  readonly members: readonly { readonly index: number; readonly sizes: readonly number[] }[];
  /** What it takes behind all of these: where each member's blocks end, but for the last's. */
  readonly ends: readonly number[];
  readonly blocks: number;
  print(): KernelSource;
}

/** Two blocks on a multiprocessor: one reads while the other joins what it has read. They share its registers. */
const [threads, blocksAtOnce] = [512, 2];
const warp = 32;
/** Of a thread's registers: for partial results at a time, and for what is on its way from memory. */
const [keptBytes, loadedBytes] = [64, 64];
/** A kernel's arguments have a limit of 4 KiB; none is larger than eight bytes. */
const mostArguments = 500;

/** Can one launch take so many arguments? */
export function areColumnArgumentsFew(kernels: readonly ColumnKernel[]): boolean {
  return sumOf(kernels, argumentsOf) <= mostArguments;
}

function argumentsOf({ inputs, outputs, scalars }: ColumnKernel): number {
  return 2 * inputs.length + outputs.length + 2 + scalars.length + 1;
}

interface Placed extends ColumnGroupMember {
  readonly index: number;
  readonly layout: ColumnLayout;
  readonly blocks: number;
  /** Members of one text are printed once. */
  readonly text: string;
  /** The bytes that a block reads. */
  readonly work: number;
}

/** `parallelism`: how many multiprocessors there are. */
export function cudaColumnGroupForm(
  launches: readonly ColumnGroupMember[],
  parallelism: number,
): ColumnGroupForm {
  const placed = inOrder(place(launches, parallelism));
  const texts = [...new Set(placed.map(({ text }) => text))];
  const ends: number[] = [];
  let blocks = 0;
  for (const member of placed) {
    blocks += member.blocks;
    ends.push(blocks);
  }
  return {
    key: placed.map(({ text }) => text).join(" "),
    members: placed.map((member) => ({ index: member.index, sizes: columnSizes(member.kernel, member) })),
    ends: ends.slice(0, -1),
    blocks,
    print: () => printGroup(texts.map((text) => placed.filter((member) => member.text === text))),
  };
}

/** As many columns a block as fill a sector, and fewer where all blocks together would leave most of the GPU idle. */
function place(launches: readonly ColumnGroupMember[], parallelism: number): readonly Placed[] {
  for (let share = 1; ; share *= 2) {
    const placed = launches.map((member, index) => placeOne(member, index, share));
    const isBusy = 4 * sumOf(placed, ({ blocks }) => blocks) > parallelism;
    if (isBusy || placed.every(({ layout }) => layout.columns === 1 || layout.parts === warp)) return placed;
  }
}

function placeOne(member: ColumnGroupMember, index: number, share: number): Placed {
  const { kernel, rows, strides } = member;
  const parts = columnParts(rows);
  const columns = parts === warp ? threads / warp : columnsOf(member, share);
  const lanes = Math.min(parts, threads / columns);
  const rounds = roundsOf(kernel, parts / lanes);
  const held = parts / lanes / rounds;
  const turns = columnTurns(kernel, { rows, parts, held }, loadedBytes / widestOf(kernel));
  const layout = { strides: strides.map(({ column }) => column), parts, lanes, columns, turns, rounds };
  const steps = layout.strides.map((stride) => (stride === "unit" ? "u" : "n")).join("");
  const bytes = sumOf([...kernel.inputs.entries()], ([input, dtype]) =>
    strides[input]?.column === "unit" ? columns * dtypes[dtype].bytes : dtypes[dtype].bytes,
  );
  return {
    ...member,
    ...{ index, layout, blocks: Math.ceil(member.columns / columns), work: rows * bytes },
    text: `${identityOf(kernel)}/${parts}/${columns}/${turns}/${rounds}${steps}`,
  };
}

function columnsOf(member: ColumnGroupMember, share: number): number {
  const most = sectorColumns(member.kernel, member) / share;
  let columns = 1;
  while (2 * columns <= most && columns < member.columns) columns *= 2;
  return columns;
}

/** Of a column with many partial results a thread makes several, of every value: not at once, if they are too many to be kept. */
function roundsOf({ values }: ColumnKernel, held: number): number {
  const bytes = sumOf(values, ({ type }) => dtypes[type].bytes);
  let rounds = 1;
  while (rounds < held && (held / rounds) * bytes > keptBytes) rounds *= 2;
  return rounds;
}

function widestOf({ inputs }: ColumnKernel): number {
  return Math.max(...inputs.map((dtype) => dtypes[dtypes[dtype].compute].bytes), dtypes.f32.bytes);
}

/** What takes longest comes first, so that no block begins a long work when the others end. */
function inOrder(placed: readonly Placed[]): readonly Placed[] {
  const longest = new Map<string, number>();
  for (const { text, work } of placed) longest.set(text, Math.max(work, longest.get(text) ?? 0));
  const longestOf = ({ text }: Placed): number => longest.get(text) ?? 0;
  return [...placed].sort(
    (a, b) => longestOf(b) - longestOf(a) || a.text.localeCompare(b.text) || b.work - a.work,
  );
}

const identities = new WeakMap<ColumnKernel, number>();
let known = 0;

/** A number for a kernel, so that it can stand in a key. */
function identityOf(kernel: ColumnKernel): number {
  const identity = identities.get(kernel) ?? known++;
  identities.set(kernel, identity);
  return identity;
}

/** Members of one text stand one behind the other; the block finds its text first, then whose operands it works on. */
function printGroup(groups: readonly (readonly Placed[])[]): KernelSource {
  const parameters: Parameter[] = [];
  const signature: string[] = [];
  const lines: string[] = [];
  const functions: ColumnFunction[] = [];
  const count = sumOf(groups, ({ length }) => length);
  let place = 0;
  for (const [number, members] of groups.entries()) {
    const [first] = members;
    if (!first) continue;
    const name = `columns${number}`;
    const printed = printColumnFunction(first.kernel, first.layout, name);
    functions.push(printed);
    const from = place;
    for (const _ of members) {
      for (const { kind, type, name: parameter } of printed.parameters) {
        parameters.push(kind);
        signature.push(`${type} ${parameter}_${place}`);
      }
      place++;
    }
    const head = place < count ? `if (block < end${place - 1}) {` : "{";
    lines.push(`  ${number === 0 ? "" : "else "}${head}`);
    lines.push(...printChoice(printed, name, from, place), "  }");
  }
  for (let end = 0; end < count - 1; end++) {
    parameters.push("u32");
    signature.push(`unsigned end${end}`);
  }
  const names = [...new Set(groups.flatMap((members) => members.map(({ kernel }) => kernel.name)))];
  const entry = "hf_columns_together";
  const called = new Set<PreludeName>(functions.flatMap((one) => [...one.called]));
  const doubles = Math.max(...functions.map(({ sharedDoubles }) => sharedDoubles));
  const code = `${preludeOf(called)}${functions.map((one) => one.code).join("\n")}
extern "C" __global__ void __launch_bounds__(${threads}, ${blocksAtOnce}) ${entry}(
    ${signature.join(",\n    ")}) {
  __shared__ double memory[${doubles}];
  const unsigned block = blockIdx.x;
${lines.join("\n")}
}
`;
  return { name: names.join(" + "), parameters, cuda: { entry, threads, code } };
}

/** Whose operands the block works on, of the members from one place up to another; then the work. */
function printChoice(
  { parameters }: ColumnFunction,
  name: string,
  from: number,
  to: number,
): readonly string[] {
  const lines = ["    unsigned start;", ...parameters.map((one) => `    ${one.type} ${one.name};`)];
  for (let place = from; place < to; place++) {
    const test = place < to - 1 ? `if (block < end${place}) ` : "";
    lines.push(`    ${place === from ? "" : "else "}${test}{`);
    lines.push(`      start = ${place === 0 ? "0u" : `end${place - 1}`};`);
    lines.push(...parameters.map((one) => `      ${one.name} = ${one.name}_${place};`), "    }");
  }
  const given = ["block - start", "memory", ...parameters.map((one) => one.name)];
  return [...lines, `    ${name}(${given.join(", ")});`];
}

function sumOf<T>(list: readonly T[], measure: (one: T) => number): number {
  return list.reduce((sum, one) => sum + measure(one), 0);
}
