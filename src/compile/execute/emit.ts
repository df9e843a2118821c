/** From calls to launches: kernels are printed and loaded, parts become storages, and what is sent is written down once. */

import {
  type ColumnLaunch,
  type GemmInputDtype,
  type GemmProblem,
  gemm,
  gemmWithEpilogue,
  groupedGemm,
  launchColumnGroup,
  launchColumns,
  launchPartials,
  launchRowCombo,
  launchRows,
  type RowLaunch,
} from "../../kernels/index.js";
import type { Runtime, Storage, WorkCommand } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { runAttention } from "../program/attention-call.js";
import type {
  BufferSlice,
  Call,
  ColumnCall,
  GemmCall,
  PartialReduceCall,
  RowCall,
  ScheduledCall,
} from "../program/program.js";

/** A launch, a fill or a copy of the program, ready to be sent. */
export interface Piece {
  /** Which call it comes of. */
  readonly call: number;
  readonly op: string;
  readonly work: WorkCommand;
}

/**
 * What the calls send, one after the other, on storages that `resolve` finds for parts. Where they are scheduled, those begin early
 * that may and that have a launch before them.
 */
export function emitCalls(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: (slice: BufferSlice) => Storage,
  schedule: readonly Pick<ScheduledCall, "stream" | "prefetches">[] = [],
): readonly Piece[] {
  const pieces: Piece[] = [];
  /** By branch: what its latest call has sent last. */
  const latest = new Map<number, Piece | undefined>();
  for (const [index, call] of calls.entries()) {
    beat("kernels", index, calls.length);
    const first = pieces.length;
    const traceSink = {
      work: (work: WorkCommand) => void pieces.push({ call: index, op: call.op, work }),
      upload: () => undefined,
      assume: () => undefined,
      guard: () => undefined,
      checkIndices: () => undefined,
      forget: () => undefined,
      reject(what: string, label: string): never {
        throw new Error(`A call of "${call.op}" asks for ${what} of "${label}", which no call does.`);
      },
    };
    const { stream = 0, prefetches: early } = schedule[index] ?? {};
    const mayBegin = latest.get(stream)?.work.kind === "launch" ? early : undefined;
    runtime.interceptWork(traceSink, () => emitCall(runtime, call, resolve, mayBegin));
    const own = pieces[first];
    if (own && mayBegin) pieces[first] = withPrefetch(own, { isPdl: true });
    latest.set(stream, own && pieces.at(-1));
  }
  return pieces;
}

/** The same, which begins early or not if it is a launch. */
export function withPrefetch(piece: Piece, { isPdl }: { readonly isPdl: boolean }): Piece {
  const { work } = piece;
  if (work.kind !== "launch") return piece;
  return { ...piece, work: { ...work, request: { ...work.request, isPdl } } };
}

function emitCall(
  runtime: Runtime,
  { op, work }: Call,
  resolve: (slice: BufferSlice) => Storage,
  early: readonly BufferSlice[] | undefined,
): void {
  const isPdl = (slice: BufferSlice): boolean => early?.includes(slice) === true;
  const prefetchesOf = (slices: readonly BufferSlice[]): readonly boolean[] | undefined =>
    early && slices.map(isPdl);
  switch (work.kind) {
    case "row":
      launchRows(runtime, { ...rowsOn(work, resolve), early: prefetchesOf(work.operands) });
      return;
    case "combo": {
      const launches = work.rows.map((one) => ({
        ...rowsOn(one, resolve),
        early: prefetchesOf(one.operands),
      }));
      launchRowCombo(runtime, launches, { op });
      return;
    }
    case "column":
      launchColumns(runtime, columnsOn(work, resolve));
      return;
    case "grouped-reduce": {
      const launches = work.columns.map((one) => columnsOn(one, resolve));
      const scratch = work.scratch && resolve(work.scratch);
      launchColumnGroup(runtime, launches, {
        scratch,
        begun: work.begun && begunOn(work.begun, resolve),
        op,
      });
      return;
    }
    case "partial-reduce":
      launchPartials(runtime, begunOn(work, resolve), op);
      return;
    case "gemm":
      gemm(runtime, { ...problemOn(work.problem, resolve), prefetchesB: isPdl(work.problem.b.slice) }, op);
      return;
    case "grouped-gemm": {
      const problems = work.problems.map((problem) => problemOn(problem, resolve));
      groupedGemm(runtime, problems, op);
      return;
    }
    case "gemm-epilogue": {
      const { problem, finish, operands, scalars } = work;
      const { c, ...rest } = problem;
      const on = {
        ...operandsOn(rest, resolve),
        ...(finish.storesC && { c: lyingOn(c, resolve) }),
        prefetchesB: isPdl(problem.b.slice),
      };
      // Of a result that is not kept there is no memory to resolve.
      const storages = operands.map((slice, index) =>
        index === finish.product ? undefined : resolve(slice),
      );
      gemmWithEpilogue(runtime, on, { ...finish, operands: storages, scalars }, op);
      return;
    }
    case "attention":
      runAttention(runtime, work, resolve, op);
      return;
    case "launch": {
      const values = work.arguments.map((one) => (typeof one === "number" ? one : resolve(one)));
      runtime.launch({ op, kernel: work.kernel, blocks: work.blocks, arguments: values });
      return;
    }
    case "fill":
      runtime.fill(resolve(work.target), work.byte);
      return;
    case "copy":
      runtime.copy(resolve(work.target), resolve(work.source));
      return;
  }
}

function rowsOn(
  { kernel, iteration, operands, scalars }: RowCall,
  resolve: (slice: BufferSlice) => Storage,
): RowLaunch {
  return { kernel, iteration, operands: operands.map(resolve), scalars };
}

function columnsOn(
  { kernel, rows, columns, strides, operands, scalars }: ColumnCall,
  resolve: (slice: BufferSlice) => Storage,
): ColumnLaunch {
  return { kernel, rows, columns, strides, operands: operands.map(resolve), scalars };
}

function begunOn({ columns, scratch }: PartialReduceCall, resolve: (slice: BufferSlice) => Storage) {
  return { members: columns.map((one) => columnsOn(one, resolve)), scratch: resolve(scratch) };
}

function problemOn(
  { c, ...rest }: GemmCall["problem"],
  resolve: (slice: BufferSlice) => Storage,
): GemmProblem<GemmInputDtype> {
  return { ...operandsOn(rest, resolve), c: lyingOn(c, resolve) };
}

function operandsOn(
  { a, b, bias, scratch, ...rest }: Omit<GemmCall["problem"], "c">,
  resolve: (slice: BufferSlice) => Storage,
) {
  return {
    ...rest,
    ...{ a: lyingOn(a, resolve), b: lyingOn(b, resolve) },
    ...(bias && { bias: resolve(bias) }),
    ...(scratch && { scratch: resolve(scratch) }),
  };
}

function lyingOn<L extends { readonly slice: BufferSlice }>(
  { slice, ...layout }: L,
  resolve: (slice: BufferSlice) => Storage,
) {
  return { ...layout, storage: resolve(slice) };
}

/** Sends pieces as they were written down. */
export function submitCommands(runtime: Runtime, pieces: readonly Piece[]): void {
  for (const { work } of pieces) {
    if (work.kind === "launch") runtime.launch(work.request);
    else if (work.kind === "fill") runtime.fill(work.target, work.byte);
    else runtime.copy(work.target, work.source);
  }
}
