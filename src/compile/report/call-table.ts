/** The calls of a schedule as a table: what each launches, over how much, and what it reads and writes. */

import { formatBytes } from "../../units/index.js";
import { describeAttention } from "../program/attention-call.js";
import {
  accessesOf,
  type BufferSlice,
  type Call,
  type GemmCall,
  type GroupedReduceCall,
  type Schedule,
  type Work,
} from "../program/program.js";
import { type Column, formatColumns } from "./text-columns.js";

/** Together, with the spaces between them, no wider than a report. */
const columns: readonly Column[] = [
  { title: "call", align: "right", most: 6 },
  { title: "op", align: "left", most: 22 },
  { title: "kernel", align: "left", most: 22 },
  { title: "kind", align: "left", most: 14 },
  { title: "shape", align: "right", most: 16 },
  { title: "reads", align: "right", most: 10 },
  { title: "writes", align: "right", most: 10 },
];

/** One line a call, numbered as they stand in the schedule, below a line of titles. */
export function formatCalls({ calls }: Schedule): string[] {
  const rows = calls.map(({ call }, place) => {
    const { read, written } = bytesOf(call);
    const { op, work } = call;
    const bytes = [formatBytes(read), formatBytes(written)];
    return [String(place), op, kernelOf(work), work.kind, shapeOf(work), ...bytes];
  });
  return formatColumns(columns, rows);
}

/**
 * The bytes of the parts that a call reads and writes, each part once. A part that it steps through with gaps, or of which
 * it picks rows, counts whole.
 */
export function bytesOf(call: Call): { readonly read: number; readonly written: number } {
  const [reads, writes]: [Map<string, number>, Map<string, number>] = [new Map(), new Map()];
  const note = (into: Map<string, number>, { buffer, offset, size }: BufferSlice): void =>
    void into.set(`${buffer.id} ${offset} ${size}`, size);
  for (const access of accessesOf(call)) {
    if (access.reads) note(reads, access.slice);
    if (access.writes) note(writes, access.slice);
  }
  return { read: sum(reads.values()), written: sum(writes.values()) };
}

function sum(sizes: Iterable<number>): number {
  let total = 0;
  for (const size of sizes) total += size;
  return total;
}

/** What a call launches, for people. */
export function kernelOf(work: Work): string {
  switch (work.kind) {
    case "row":
    case "column":
    case "launch":
      return work.kernel.name;
    case "combo":
      return namesOf(work.rows).join(" + ");
    case "grouped-reduce":
      return [...namesOf(work.columns), ...combinesOf(work)].join(" + ");
    case "partial-reduce":
      return namesOf(work.columns).join(" + ");
    case "gemm":
      return gemmOf(work.problem);
    case "grouped-gemm":
      return work.problems[0] ? `${work.problems.length} × ${gemmOf(work.problems[0])}` : "";
    case "gemm-epilogue":
      return `${gemmOf(work.problem)} + ${work.finish.kernel.name}`;
    case "attention":
      return describeAttention(work);
    case "fill":
      return `fill ${work.byte}`;
    case "copy":
      return "copy";
  }
}

/** How many of which kernel. */
function namesOf(members: readonly { readonly kernel: { readonly name: string } }[]): string[] {
  const counts = new Map<string, number>();
  for (const { kernel } of members) counts.set(kernel.name, (counts.get(kernel.name) ?? 0) + 1);
  return [...counts].map(([name, count]) => (count === 1 ? name : `${count} × ${name}`));
}

function combinesOf({ begun }: GroupedReduceCall): string[] {
  return begun ? [`joins of ${begun.columns.length}`] : [];
}

/** As BLAS writes it: N for an operand as it lies, T for one that is transposed. */
function gemmOf(problem: GemmCall["problem"]): string {
  const { dtype, resultDtype = dtype, a, b, bias, activation } = problem;
  const letters = [a, b].map(({ isTransposed }) => (isTransposed ? "T" : "N")).join("");
  const dtypes = resultDtype === dtype ? dtype : `${dtype} → ${resultDtype}`;
  const slices = [
    `gemm ${letters} ${dtypes}`,
    ...(bias ? ["bias"] : []),
    ...(activation ? [activation] : []),
  ];
  return slices.join(" + ");
}

/**
 * Rows × columns; m×n×k of a product, and how many of them there are; attention's rows × columns × width alike; what a kernel
 * of its own kind is launched with.
 */
export function shapeOf(work: Work): string {
  switch (work.kind) {
    case "row":
      return `${work.iteration.rows}×${work.iteration.row.size}`;
    case "column":
      return `${work.rows}×${work.columns}`;
    case "combo":
      return work.rows.map(shapeOf).join(", ");
    case "grouped-reduce":
      return [...work.columns, ...(work.begun?.columns ?? [])].map(shapeOf).join(", ");
    case "partial-reduce":
      return work.columns.map(shapeOf).join(", ");
    case "gemm":
    case "gemm-epilogue":
      return sizesOf(work.problem);
    case "grouped-gemm":
      return work.problems.map(sizesOf).join(", ");
    case "attention": {
      const { batch, heads, rows, columns, width } = work.shape;
      return `${rows}×${columns}×${width}×${batch * heads}`;
    }
    case "launch":
      return `${work.blocks} ${work.blocks === 1 ? "block" : "blocks"}`;
    case "fill":
    case "copy":
      return "";
  }
}

function sizesOf({ m, n, k, batch = 1 }: GemmCall["problem"]): string {
  return [m, n, k, ...(batch === 1 ? [] : [batch])].join("×");
}
