/**
 * Row maps on CUDA. A first launch fills the map with −1, the largest unsigned number. A second one lowers each selected row's value to the
 * smallest entry that selects it: a minimum of integers, so the order of the atomics does not matter. A third one looks up the owner of each
 * entry. All are kernels, because fills cannot run on side streams.
 */

import type { KernelSource, Parameter } from "../../driver/index.js";
import type { Command, LaunchCommand, Storage } from "../../runtime/index.js";
import { indented, numberedLocal, selectMember } from "../codegen/cuda/combo/select-member.js";
import { pdlDeclaration, pdlWait } from "../codegen/cuda/intrinsics/pdl.js";
import { paddedGroupSize } from "../multi-tensor/group-size.js";
import { cachedSource } from "../source-cache.js";
import type { IndexedTable, RowMapProblem } from "./problem.js";

const threads = 256;
/** Tables of one launch: each takes 32 bytes of its 4 KiB of arguments. */
const maxTables = 64;

export function lowerRowMapOnCuda({ tables, map, owners }: RowMapProblem, op: string): readonly Command[] {
  const groups = groupTables(tables);
  const launch = (kernel: "claim" | "look up", group: TableGroup): LaunchCommand => ({
    ...{ kind: "launch", op, source: rowMapKernel(kernel, group.size), blocks: group.blocks },
    arguments: [...group.indices, map, ...(kernel === "look up" ? [owners] : []), ...group.sizes],
  });
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  return [
    {
      ...{
        kind: "launch",
        op,
        source: clearMapKernel,
        blocks: Math.ceil(rows / (threads * clearedPerThread)),
      },
      arguments: [map, rows],
    },
    ...groups.map((group) => launch("claim", group)),
    ...groups.map((group) => launch("look up", group)),
  ];
}

/** The tables of a launch, as its arguments. */
interface TableGroup {
  readonly size: number;
  readonly blocks: number;
  readonly indices: readonly Storage[];
  /** By kind of number, for each table: strides, counts, rows, first entries, first rows, ends of blocks. */
  readonly sizes: readonly number[];
}

function groupTables(tables: readonly IndexedTable<Storage>[]): readonly TableGroup[] {
  const groups: TableGroup[] = [];
  let [firstEntry, firstRow] = [0, 0];
  for (let first = 0; first < tables.length; first += maxTables) {
    const group = tables.slice(first, first + maxTables);
    const padding = paddedGroupSize(group.length) - group.length;
    const columns: number[][] = [[], [], [], [], [], []];
    let blocks = 0;
    for (const { stride, count, rows } of group) {
      blocks += Math.ceil(count / threads);
      for (const [column, value] of [stride, count, rows, firstEntry, firstRow, blocks].entries())
        columns[column]?.push(value);
      firstEntry += count;
      firstRow += rows;
    }
    groups.push({
      ...{ size: group.length + padding, blocks },
      indices: padded(
        group.map(({ index }) => index),
        padding,
      ),
      sizes: columns.flatMap((column) => padded(column, padding)),
    });
  }
  return groups;
}

/** The last member repeated: its blocks end with the grid, so that a repeated one has none. */
function padded<T>(list: readonly T[], padding: number): readonly T[] {
  const last = list.at(-1);
  return last === undefined ? list : [...list, ...new Array<T>(padding).fill(last)];
}

const clearedPerThread = 4;

const clearMapKernel: KernelSource = {
  name: "row map: clear",
  parameters: ["out", "u32"],
  cuda: {
    entry: "hf_row_map_clear",
    threads,
    hasGridDependencyWait: true,
    code: `${pdlDeclaration}extern "C" __global__ void __launch_bounds__(${threads}) hf_row_map_clear(unsigned* map, unsigned rows) {
${pdlWait}  const unsigned first = blockIdx.x * ${threads * clearedPerThread}u + threadIdx.x;
#pragma unroll
  for (unsigned i = 0; i < ${clearedPerThread}u; i++) {
    const unsigned row = first + i * ${threads}u;
    if (row < rows) map[row] = 0xffffffffu;
  }
}
`,
  },
};

/** The kernel that gives each selected row its owner, or that looks up the owners of the entries. */
export function rowMapKernel(kernel: "claim" | "look up", size: number): KernelSource {
  return cachedSource(`cuda row map ${kernel} of ${size}`, () => printKernel(kernel, size));
}

const bodies = {
  claim: "if (row < rows) atomicMin(map + firstRow + row, firstEntry + entry);",
  "look up": "owners[firstEntry + entry] = row < rows ? map[firstRow + row] - firstEntry : 0xffffffffu;",
} as const;

function printKernel(kernel: "claim" | "look up", size: number): KernelSource {
  const looksUp = kernel === "look up";
  const entry = `hf_row_map_${kernel.replace(" ", "_")}_${size}`;
  const each = (parameter: Parameter, count = 1): Parameter[] =>
    new Array<Parameter>(size * count).fill(parameter);
  const list = (parameter: (index: number) => string): string =>
    Array.from({ length: size }, (_, index) => parameter(index)).join(", ");
  const names = ["stride", "count", "rows", "firstEntry", "firstRow"] as const;
  const locals = [
    numberedLocal("const unsigned*", "index"),
    ...names.map((name) => numberedLocal("unsigned", name)),
  ];
  return {
    name: `row map: ${kernel}`,
    // "partial-out": other launches look up the owners of further tables.
    parameters: [
      ...each("in"),
      ...(looksUp ? (["in", "partial-out"] as const) : (["inout"] as const)),
      ...each("u32", names.length + 1),
    ],
    cuda: {
      entry,
      threads,
      hasGridDependencyWait: true,
      code: `${pdlDeclaration}extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(
${list((index) => `const unsigned* index${index}`)},
${looksUp ? "const unsigned* map, unsigned* owners" : "unsigned* map"},
${names.map((name) => list((index) => `unsigned ${name}${index}`)).join(",\n")},
${list((index) => (index < size - 1 ? `unsigned end${index}` : "unsigned"))}) {
${pdlWait}${indented(selectMember({ end: size, locals, index: "block" }))}  const unsigned entry = block * ${threads}u + threadIdx.x;
  if (entry >= count) return;
  const unsigned row = index[(size_t)entry * stride];
  ${bodies[kernel]}
}
`,
    },
  };
}
