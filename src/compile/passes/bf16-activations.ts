/**
 * In bf16 precision on a GPU, results that only pass from one kernel to the next are stored as bf16 (`narrow-results.ts`): half the memory
 * traffic, and attention takes its fastest kernels. Accumulators are f32 and are rounded once, at the store.
 *
 * A column reduction, such as the gradient of a bias, loads bf16 and accumulates f32. Its inputs are rounded as in PyTorch's autocast, where
 * every gradient of a linear layer's input is bf16.
 */

import { biasAlignment } from "../../driver/index.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import { capabilitiesOf, hasNativeGemm, storedDtype, writtenOperand } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { sliceOfCopy } from "../execute/weight-copies.js";
import { type Cast, castOf } from "../program/casts.js";
import { type AttentionCall, readAsHalves, resultsOf } from "../program/kinds/attention.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  type GemmCall,
  isSameSlice,
  mapSlices,
  type Node,
  type Program,
  type Work,
} from "../program/program.js";
import { extentOf } from "../program/slices.js";
import { isUnchangedBefore, isWrittenOnce } from "../program/uses.js";
import { narrow, narrowKernel, narrowProblem } from "./narrow-kernel.js";
import { findNarrowResults, resultIds } from "./narrow-results.js";

/** `only`: the ids of the buffers that may become bf16; default: all. */
export function storeActivationsAsBf16(runtime: Runtime, program: Program, only?: ReadonlySet<number>): void {
  if (!capabilitiesOf(runtime).multipliesHalfFloats || runtime.settings.precision !== narrow) return;
  const halves = new Map<Buffer, Buffer>();
  for (const buffer of findNarrowResults(runtime, program, only))
    halves.set(buffer, program.makeBuffer(buffer.bytes / 2, buffer.label));
  if (halves.size === 0) return;
  const casts = needlessCasts(program, halves);
  const sources = new Map(casts.map(({ cast, source }) => [cast.to.buffer, source]));
  for (const { cast } of casts) program.remove(cast.node);
  const isNarrow = ({ buffer }: BufferSlice): boolean => halves.has(buffer);
  const moved = (slice: BufferSlice): BufferSlice => {
    const buffer = halves.get(slice.buffer);
    if (buffer) return { buffer, offset: slice.offset / 2, size: slice.size / 2 };
    return { ...slice, buffer: sources.get(slice.buffer) ?? slice.buffer };
  };
  for (const node of program.nodes) {
    const { call } = node;
    const slices = node.accesses.map(({ slice }) => slice);
    if (!slices.some((slice) => isNarrow(slice) || sources.has(slice.buffer))) continue;
    const work = slices.some(isNarrow) ? narrowWork(runtime, program, node, isNarrow) : call.work;
    program.replace(node, { ...call, work: mapSlices(work, moved) });
  }
}

/** The ids of the buffers that became bf16 between two programs. */
export function bf16ActivationsIn(before: readonly Call[], after: readonly Call[]): ReadonlySet<number> {
  const left = new Set(after.flatMap(resultIds));
  return new Set(before.flatMap(resultIds).filter((id) => !left.has(id)));
}

/** The same work with results stored and operands loaded as bf16. */
function narrowWork(
  runtime: Runtime,
  program: Program,
  node: Node,
  isNarrow: (slice: BufferSlice) => boolean,
): Work {
  const { work } = node.call;
  switch (work.kind) {
    case "gemm": {
      const problem = narrowProblem(work.problem);
      const hasKernel = !problem.bias || hasNativeGemm(runtime, describeGemm(problem));
      const possible = hasKernel ? problem : withNarrowBias(program, node, problem);
      return { kind: "gemm", problem: withScratch(runtime, program, possible) };
    }
    case "gemm-epilogue": {
      const { epilogue, operands, problem } = work;
      const isResult = epilogue.storesC && isNarrow(problem.c.slice);
      // The epilogue works on the accumulators, before they are rounded.
      const others = (slice: BufferSlice): boolean => isNarrow(slice) && !isSameSlice(slice, problem.c.slice);
      return {
        ...work,
        problem: isResult ? narrowProblem(problem) : problem,
        epilogue: { ...epilogue, kernel: narrowKernel(epilogue.kernel, operands, others) },
      };
    }
    case "convolution":
      return { ...work, shape: narrowConvolution(work, isNarrow) };
    case "row":
      return { ...work, kernel: narrowKernel(work.kernel, work.operands, isNarrow) };
    case "column":
      return { ...work, kernel: narrowKernel(work.kernel, work.operands, isNarrow) };
    case "attention":
      return narrowAttention(work, isNarrow);
    default:
      return work;
  }
}

/** The shape with a result stored or images loaded as bf16. Only depthwise convolutions load such images. */
function narrowConvolution(
  { shape, operands }: ConvolutionCall,
  isNarrow: (slice: BufferSlice) => boolean,
): ConvolutionCall["shape"] {
  const written = writtenOperand[shape.direction];
  const dtype = isNarrow(operands[written]) ? narrow : shape.dtype;
  if (!shape.depthwise) return { ...shape, dtype };
  const read = (["x", "weight", "y"] as const).filter((name) => name !== written);
  const dtypes = Object.fromEntries(
    read.map((name) => [name, isNarrow(operands[name]) ? narrow : storedDtype(shape, name)]),
  );
  return { ...shape, dtype, depthwise: { ...shape.depthwise, dtypes } };
}

/** Attention with its operands read, or its results stored, as bf16. */
function narrowAttention(work: AttentionCall, isNarrow: (slice: BufferSlice) => boolean): AttentionCall {
  const results = resultsOf(work);
  const read = readAsHalves(work, narrow, (slice) => isNarrow(slice) && !results.includes(slice)) ?? work;
  return results.some(isNarrow) ? { ...read, shape: { ...read.shape, resultDtype: narrow } } : read;
}

const castKernel: RowKernel = {
  ...{ name: `f32 to ${narrow}`, inputs: ["f32"], scalars: [] },
  outputs: [{ dtype: narrow, per: "element" }],
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** With the bias as bf16: cuBLASLt needs the dtype of the result. A weight copy or a cast of weights often has it already. */
function withNarrowBias(program: Program, node: Node, problem: GemmCall["problem"]): GemmCall["problem"] {
  const { bias } = problem;
  if (!bias) return problem;
  return {
    ...problem,
    biasDtype: narrow,
    bias:
      weightCopyOf(program, node, bias) ?? castBefore(program, node, bias) ?? insertCast(program, node, bias),
  };
}

/** The part of a weight copy that has these values. */
function weightCopyOf(program: Program, node: Node, bias: BufferSlice): BufferSlice | undefined {
  if (!isUnchangedBefore(program, bias.buffer, node)) return undefined;
  for (const buffer of program.buffers) {
    const { copyOf } = buffer;
    if (copyOf?.kernel.outputs[0]?.dtype !== narrow || !contains(copyOf.source, bias)) continue;
    const slice = sliceOfCopy(buffer, bias);
    const isCurrent = program.uses(buffer).writers.every((writer) => node.isBefore(writer));
    if (isCurrent && slice.offset % biasAlignment === 0) return slice;
  }
  return undefined;
}

/** True if a slice has all bytes of another one, also if its buffer is that of another program. */
function contains(outer: BufferSlice, inner: BufferSlice): boolean {
  const [a, b] = [extentOf(outer), extentOf(inner)];
  return a.space === b.space && a.from <= b.from && b.to <= a.to;
}

/** The part of an earlier cast's result that has these values. */
function castBefore(program: Program, node: Node, bias: BufferSlice): BufferSlice | undefined {
  if (!isUnchangedBefore(program, bias.buffer, node)) return undefined;
  for (const reader of program.uses(bias.buffer).readers) {
    if (!reader.isBefore(node)) return undefined;
    const cast = castOf(reader);
    if (cast?.work.kernel.outputs[0]?.dtype !== narrow || cast.from.buffer !== bias.buffer) continue;
    const offset = bias.offset - cast.from.offset;
    if (offset < 0 || offset + bias.size > cast.from.size || !isWrittenOnce(program, cast.to.buffer))
      continue;
    if ((offset / 2) % biasAlignment === 0)
      return { buffer: cast.to.buffer, offset: offset / 2, size: bias.size / 2 };
  }
  return undefined;
}

function insertCast(program: Program, node: Node, bias: BufferSlice): BufferSlice {
  const to = { buffer: program.makeBuffer(bias.size / 2, "bias"), offset: 0, size: bias.size / 2 };
  const iteration = iterateElements([bias.size / 4], [[1], [1]]);
  const work = { kind: "row", kernel: castKernel, iteration, operands: [bias, to], scalars: [] } as const;
  program.insertBefore(node, { op: node.call.op, work });
  return to;
}

/** A cast to bf16 of a buffer that is bf16 already, and the bf16 buffer. */
interface NeedlessCast {
  readonly cast: Cast;
  readonly source: Buffer;
}

function needlessCasts(program: Program, halves: ReadonlyMap<Buffer, Buffer>): readonly NeedlessCast[] {
  return program.nodes.flatMap((node): NeedlessCast | [] => {
    const cast = castOf(node);
    const source = cast && halves.get(cast.from.buffer);
    if (!source || cast.from.size !== cast.from.buffer.bytes) return [];
    if (cast.work.kernel.outputs[0]?.dtype !== narrow || !isWrittenOnce(program, cast.to.buffer)) return [];
    return { cast, source };
  });
}
