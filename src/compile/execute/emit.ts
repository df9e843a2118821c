/** From a program's calls to commands: slices become storages, the backend lowers the calls, and the kernels are loaded once. */

import {
  type Backend,
  backendOf,
  type ColumnLaunch,
  columnCalls,
  type GemmInputDtype,
  type GemmProblem,
  gemmCalls,
  lowerCalls,
  type RowLaunch,
  rowCalls,
} from "../../kernels/index.js";
import type { Command, LoadedCommand, Runtime, Storage } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { attentionOn } from "../program/kinds/attention.js";
import type {
  BufferSlice,
  Call,
  ColumnCall,
  GemmCall,
  LaunchCall,
  PartialReduceCall,
  RowCall,
  ScheduledCall,
  Work,
} from "../program/program.js";

/** A command of a program's call, with its kernel loaded. */
export interface StepCommand {
  /** The index of the call. */
  readonly call: number;
  readonly op: string;
  readonly command: LoadedCommand;
}

/**
 * The commands of the calls, in order, on the storages that `resolve` finds for slices. With a schedule, a call that may start
 * early does so if the call before it on its stream ends with a launch.
 */
export function emitCommands(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: (slice: BufferSlice) => Storage,
  schedule: readonly Pick<ScheduledCall, "stream" | "prefetches">[] = [],
): readonly StepCommand[] {
  const backend = backendOf(runtime);
  const emitted: StepCommand[] = [];
  /** By stream: the last command of its latest call. */
  const latest = new Map<number, StepCommand | undefined>();
  for (const [index, { op, work }] of calls.entries()) {
    beat("kernels", index, calls.length);
    const { stream = 0, prefetches } = schedule[index] ?? {};
    const early = latest.get(stream)?.command.kind === "launch" ? prefetches : undefined;
    const commands =
      work.kind === "launch"
        ? [launchOn(op, work, resolve)]
        : runtime.load(lowerWork(backend, op, work, resolve, early));
    const ofCall = commands.map((command): StepCommand => ({ call: index, op, command }));
    const [first, ...rest] = ofCall;
    if (first && early) emitted.push(withPdl(first, true), ...rest);
    else emitted.push(...ofCall);
    latest.set(stream, ofCall.at(-1));
  }
  return emitted;
}

/** The command with or without programmatic dependent launch. A command that is not a launch stays unchanged. */
export function withPdl(step: StepCommand, isPdl: boolean): StepCommand {
  const { command } = step;
  if (command.kind !== "launch") return step;
  return { ...step, command: { ...command, request: { ...command.request, isPdl } } };
}

/** `early`: with programmatic dependent launch, the slices that it may read before its predecessor has ended. */
function lowerWork(
  backend: Backend,
  op: string,
  work: Exclude<Work, LaunchCall>,
  resolve: (slice: BufferSlice) => Storage,
  early: readonly BufferSlice[] | undefined,
): readonly Command[] {
  const isPrefetched = (slice: BufferSlice): boolean => early?.includes(slice) === true;
  const prefetchesOf = (slices: readonly BufferSlice[]): readonly boolean[] | undefined =>
    early && slices.map(isPrefetched);
  switch (work.kind) {
    case "row":
      return lowerCalls(
        backend,
        rowCalls({ ...rowsOn(work, resolve), prefetchable: prefetchesOf(work.operands) }),
      );
    case "combo": {
      const launches = work.rows.map((row) => ({
        ...rowsOn(row, resolve),
        prefetchable: prefetchesOf(row.operands),
      }));
      return backend.lowerRowCombo(launches, op);
    }
    case "column":
      return lowerCalls(backend, columnCalls(columnsOn(work, resolve)));
    case "grouped-reduce": {
      const launches = work.columns.map((one) => columnsOn(one, resolve));
      const scratch = work.scratch && resolve(work.scratch);
      const begun = work.partials && begunOn(work.partials, resolve);
      return backend.lowerColumnGroup(launches, { scratch, earlier: begun, op });
    }
    case "partial-reduce":
      return backend.lowerPartials(begunOn(work, resolve), op);
    case "gemm":
      return lowerCalls(
        backend,
        gemmCalls({ ...gemmOn(work.problem, resolve), prefetchesB: isPrefetched(work.problem.b.slice) }, op),
      );
    case "grouped-gemm": {
      const problems = work.problems.map((problem) => gemmOn(problem, resolve));
      return backend.lowerGroupedGemm(problems, op);
    }
    case "gemm-epilogue": {
      const { problem, epilogue: finish, operands, scalars } = work;
      const { c, ...rest } = problem;
      const on = {
        ...operandsOn(rest, resolve),
        ...(finish.storesC && { c: matrixOn(c, resolve) }),
        prefetchesB: isPrefetched(problem.b.slice),
      };
      // A C that is not stored has no memory to resolve.
      const storages = operands.map((slice, index) =>
        index === finish.gemmInput ? undefined : resolve(slice),
      );
      return backend.lowerGemmEpilogue(on, { ...finish, operands: storages, scalars }, op);
    }
    case "attention":
      return lowerCalls(backend, attentionOn(work, resolve, op));
    case "fill":
      return [{ kind: "fill", target: resolve(work.target), byte: work.byte }];
    case "copy":
      return [{ kind: "copy", target: resolve(work.target), source: resolve(work.source) }];
  }
}

/** Its kernel was loaded when the step was traced. */
function launchOn(
  op: string,
  { kernel, blocks, arguments: slices }: LaunchCall,
  resolve: (slice: BufferSlice) => Storage,
): LoadedCommand {
  const values = slices.map((slice) => (typeof slice === "number" ? slice : resolve(slice)));
  return { kind: "launch", request: { op, kernel, blocks, arguments: values } };
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

function gemmOn(
  { c, ...rest }: GemmCall["problem"],
  resolve: (slice: BufferSlice) => Storage,
): GemmProblem<GemmInputDtype> {
  return { ...operandsOn(rest, resolve), c: matrixOn(c, resolve) };
}

function operandsOn(
  { a, b, bias, scratch, ...rest }: Omit<GemmCall["problem"], "c">,
  resolve: (slice: BufferSlice) => Storage,
) {
  return {
    ...rest,
    ...{ a: matrixOn(a, resolve), b: matrixOn(b, resolve) },
    ...(bias && { bias: resolve(bias) }),
    ...(scratch && { scratch: resolve(scratch) }),
  };
}

function matrixOn<L extends { readonly slice: BufferSlice }>(
  { slice, ...layout }: L,
  resolve: (slice: BufferSlice) => Storage,
) {
  return { ...layout, storage: resolve(slice) };
}

export function submitCommands(runtime: Runtime, commands: readonly StepCommand[]): void {
  runtime.submit(commands.map(({ command }) => command));
}
