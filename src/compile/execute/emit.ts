/** From calls to launches: kernels are printed and loaded, parts become storages, and what is sent is written down once. */

import {
  beginColumns,
  type ColumnLaunch,
  type GemmProblem,
  gemm,
  gemmFinished,
  gemmMany,
  launchColumns,
  launchColumnsTogether,
  launchRows,
  launchRowsBeside,
  type ProductDtype,
  type RowLaunch,
} from "../../kernels/index.js";
import type { Runtime, Storage, WorkPiece } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { runAttention } from "../program/attention-call.js";
import type {
  BegunCall,
  Call,
  ColumnCall,
  Part,
  ProductCall,
  RowCall,
  ScheduledCall,
} from "../program/program.js";

/** A launch, a fill or a copy of the program, ready to be sent. */
export interface Piece {
  /** Which call it comes of. */
  readonly call: number;
  readonly op: string;
  readonly work: WorkPiece;
}

/**
 * What the calls send, one after the other, on storages that `resolve` finds for parts. Where they are scheduled, those begin early
 * that may and that have a launch before them.
 */
export function emitCalls(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: (part: Part) => Storage,
  schedule: readonly Pick<ScheduledCall, "branch" | "early">[] = [],
): readonly Piece[] {
  const pieces: Piece[] = [];
  /** By branch: what its latest call has sent last. */
  const latest = new Map<number, Piece | undefined>();
  for (const [index, call] of calls.entries()) {
    beat("kernels", index, calls.length);
    const first = pieces.length;
    const imagination = {
      work: (work: WorkPiece) => void pieces.push({ call: index, op: call.op, work }),
      upload: () => undefined,
      assume: () => undefined,
      guard: () => undefined,
      checkIndices: () => undefined,
      forget: () => undefined,
      refuse(what: string, label: string): never {
        throw new Error(`A call of "${call.op}" asks for ${what} of "${label}", which no call does.`);
      },
    };
    const { branch = 0, early } = schedule[index] ?? {};
    const mayBegin = latest.get(branch)?.work.kind === "launch" ? early : undefined;
    runtime.overhear(imagination, () => emitCall(runtime, call, resolve, mayBegin));
    const own = pieces[first];
    if (own && mayBegin) pieces[first] = withBeginning(own, { isEarly: true });
    latest.set(branch, own && pieces.at(-1));
  }
  return pieces;
}

/** The same, which begins early or not if it is a launch. */
export function withBeginning(piece: Piece, { isEarly }: { readonly isEarly: boolean }): Piece {
  const { work } = piece;
  if (work.kind !== "launch") return piece;
  return { ...piece, work: { ...work, request: { ...work.request, isEarly } } };
}

function emitCall(
  runtime: Runtime,
  { op, work }: Call,
  resolve: (part: Part) => Storage,
  early: readonly Part[] | undefined,
): void {
  const isEarly = (part: Part): boolean => early?.includes(part) === true;
  const earlyOf = (parts: readonly Part[]): readonly boolean[] | undefined => early && parts.map(isEarly);
  switch (work.kind) {
    case "rows":
      launchRows(runtime, { ...rowsOn(work, resolve), early: earlyOf(work.operands) });
      return;
    case "beside": {
      const launches = work.rows.map((one) => ({
        ...rowsOn(one, resolve),
        early: earlyOf(one.operands),
      }));
      launchRowsBeside(runtime, launches, { op });
      return;
    }
    case "columns":
      launchColumns(runtime, columnsOn(work, resolve));
      return;
    case "reductions": {
      const launches = work.columns.map((one) => columnsOn(one, resolve));
      const scratch = work.scratch && resolve(work.scratch);
      launchColumnsTogether(runtime, launches, {
        scratch,
        begun: work.begun && begunOn(work.begun, resolve),
        op,
      });
      return;
    }
    case "begun":
      beginColumns(runtime, begunOn(work, resolve), op);
      return;
    case "product":
      gemm(runtime, { ...problemOn(work.problem, resolve), isEarlyB: isEarly(work.problem.b.part) }, op);
      return;
    case "products": {
      const problems = work.problems.map((problem) => problemOn(problem, resolve));
      gemmMany(runtime, problems, op);
      return;
    }
    case "finished": {
      const { problem, finish, operands, scalars } = work;
      const { c, ...rest } = problem;
      const on = {
        ...operandsOn(rest, resolve),
        ...(finish.keepsResult && { c: lyingOn(c, resolve) }),
        isEarlyB: isEarly(problem.b.part),
      };
      // Of a result that is not kept there is no memory to resolve.
      const storages = operands.map((part, index) => (index === finish.product ? undefined : resolve(part)));
      gemmFinished(runtime, on, { ...finish, operands: storages, scalars }, op);
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
  resolve: (part: Part) => Storage,
): RowLaunch {
  return { kernel, iteration, operands: operands.map(resolve), scalars };
}

function columnsOn(
  { kernel, rows, columns, strides, operands, scalars }: ColumnCall,
  resolve: (part: Part) => Storage,
): ColumnLaunch {
  return { kernel, rows, columns, strides, operands: operands.map(resolve), scalars };
}

function begunOn({ columns, scratch }: BegunCall, resolve: (part: Part) => Storage) {
  return { members: columns.map((one) => columnsOn(one, resolve)), scratch: resolve(scratch) };
}

function problemOn(
  { c, ...rest }: ProductCall["problem"],
  resolve: (part: Part) => Storage,
): GemmProblem<ProductDtype> {
  return { ...operandsOn(rest, resolve), c: lyingOn(c, resolve) };
}

function operandsOn(
  { a, b, bias, scratch, ...rest }: Omit<ProductCall["problem"], "c">,
  resolve: (part: Part) => Storage,
) {
  return {
    ...rest,
    ...{ a: lyingOn(a, resolve), b: lyingOn(b, resolve) },
    ...(bias && { bias: resolve(bias) }),
    ...(scratch && { scratch: resolve(scratch) }),
  };
}

function lyingOn<L extends { readonly part: Part }>(
  { part, ...layout }: L,
  resolve: (part: Part) => Storage,
) {
  return { ...layout, storage: resolve(part) };
}

/** Sends pieces as they were written down. */
export function sendPieces(runtime: Runtime, pieces: readonly Piece[]): void {
  for (const { work } of pieces) {
    if (work.kind === "launch") runtime.launch(work.request);
    else if (work.kind === "fill") runtime.fill(work.target, work.byte);
    else runtime.copy(work.target, work.source);
  }
}
