/** The calls of a schedule as a table: the kernel, the shape, and the memory traffic of each. */

import { formatBytes } from "../../units/index.js";
import { kindOf } from "../program/kinds/index.js";
import type { Call, Schedule, Work } from "../program/program.js";
import { bytesOf } from "../program/traffic.js";
import { type Column, formatColumns } from "./text-columns.js";

/** Their total width, gaps included, is at most the width of a report. */
const columns: readonly Column[] = [
  { title: "call", align: "right", max: 6 },
  { title: "op", align: "left", max: 25 },
  { title: "kernel", align: "left", max: 26 },
  { title: "kind", align: "left", max: 14 },
  { title: "shape", align: "right", max: 16 },
  { title: "reads", align: "right", max: 10 },
  { title: "writes", align: "right", max: 10 },
];

/** A line of titles, then one line for each call, numbered as in the schedule. */
export function formatCalls({ calls }: Schedule): string[] {
  const rows = calls.map(({ call }, index) => {
    const { read, written } = bytesOf(call);
    const { op, work } = call;
    const bytes = [formatBytes(read), formatBytes(written)];
    return [String(index), op, kernelOf(work), work.kind, shapeOf(work), ...bytes];
  });
  return formatColumns(columns, rows);
}

/** The calls as one text. It is the same for steps that run the same kernels on the same shapes. */
export function describeCalls(calls: readonly Call[]): string {
  const lines = calls.map((call) => {
    const { read, written } = bytesOf(call);
    return [call.op, kernelOf(call.work), call.work.kind, shapeOf(call.work), read, written].join(" ");
  });
  return lines.join("\n");
}

/** The name of a call's kernel. */
export function kernelOf(work: Work): string {
  return kindOf(work).name(work);
}

/** Rows × columns; m×n×k of a GEMM, and the batch; rows × columns × width × pairs of attention; the blocks of other kernels. */
export function shapeOf(work: Work): string {
  return kindOf(work).shape(work);
}
