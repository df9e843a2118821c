/**
 * Which buffers of a bf16 step can hold bf16 instead of f32: results of GEMMs, channels-last convolutions and attention that later kernels
 * convert on load, and results of row kernels that only attention and convolutions read, which round their operands anyway. In-place sums, values that
 * are kept and weight gradients stay f32.
 */

import { type ColumnKernel, factsOf, type RowKernel } from "../../ir/index.js";
import { canFuseEpilogue, capabilitiesOf, storedDtype, writtenOperand } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { movedValueOf } from "../program/casts.js";
import { type AttentionCall, readAsHalves, resultsOf } from "../program/kinds/attention.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import {
  type Access,
  type Buffer,
  type BufferSlice,
  type Call,
  type GemmCall,
  type GemmEpilogueCall,
  isSameSlice,
  type Program,
  type RowCall,
  type Work,
} from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";
import { narrow, narrowKernel, narrowProblem } from "./narrow-kernel.js";

/** The buffers that can become bf16. `only`: the ids of those that may; default: all. */
export function findNarrowResults(
  runtime: Runtime,
  program: Program,
  only?: ReadonlySet<number>,
): ReadonlySet<Buffer> {
  const found = new Set<Buffer>();
  for (const { call } of program.nodes) {
    const buffers = [...new Set(resultBuffers(runtime, call))];
    const isNarrow = (buffer: Buffer): boolean =>
      (!only || only.has(buffer.id)) && canNarrow(runtime, program, buffer, call.work);
    const together = call.work.kind === "row" ? buffers.map((buffer) => [buffer]) : [buffers];
    for (const group of together) if (group.every(isNarrow)) for (const buffer of group) found.add(buffer);
  }
  return found;
}

/** The ids of the buffers that hold results of the kinds that can become bf16. */
export function resultIds({ work }: Call): readonly number[] {
  const idOf = ({ buffer }: BufferSlice): number => buffer.id;
  switch (work.kind) {
    case "convolution":
      return [idOf(work.operands[writtenOperand[work.shape.direction]])];
    case "gemm":
      return [idOf(work.problem.c.slice)];
    case "gemm-epilogue":
      return work.epilogue.storesC ? [idOf(work.problem.c.slice)] : [];
    case "attention":
      return resultsOf(work).map(idOf);
    case "row":
      return movedValueOf(work) ? [] : elementOutputs(work).map(idOf);
    default:
      return [];
  }
}

/** The results of a call that can be rounded at the store. Those of attention become bf16 together or not at all. */
function resultBuffers(runtime: Runtime, { work }: Call): readonly Buffer[] {
  switch (work.kind) {
    case "convolution":
      return imageOf(work);
    case "gemm":
    case "gemm-epilogue":
      return gemmResult(runtime, work);
    case "attention":
      return attentionResults(runtime, work);
    case "row":
      return elementOutputs(work).map(({ buffer }) => buffer);
    default:
      return [];
  }
}

function canNarrow(runtime: Runtime, program: Program, buffer: Buffer, work: Work): boolean {
  const { writers, readers } = program.uses(buffer);
  if (buffer.storage || readers.length === 0 || readers.some((reader) => writers.includes(reader)))
    return false;
  if (work.kind !== "row") {
    return (
      isWrittenOnce(program, buffer) &&
      !isKept(program, buffer) &&
      readers.every((reader) => canRead(runtime, reader.call, buffer))
    );
  }
  // Several kernels may write it, such as the halves of a rotated query.
  const isStored = ({ call }: (typeof writers)[number]): boolean =>
    call.work.kind === "row" && writesOnlyElements(call.work, buffer);
  return (
    writers.every(isStored) &&
    readers.every(({ call }) => roundsOperands(call.work) && canRead(runtime, call, buffer))
  );
}

/** Attention and convolutions take their operands as bf16, as in PyTorch's autocast. */
function roundsOperands({ kind }: Work): boolean {
  return kind === "attention" || kind === "convolution";
}

/** The outputs of a row kernel with an f32 for each element. */
function elementOutputs({ kernel: { inputs, outputs }, operands }: RowCall): readonly BufferSlice[] {
  return outputs.flatMap(({ dtype, per }, index) => {
    const slice = operands[inputs.length + index];
    return slice && dtype === "f32" && per === "element" ? [slice] : [];
  });
}

function writesOnlyElements(work: RowCall, buffer: Buffer): boolean {
  const outputs = work.operands.slice(work.kernel.inputs.length).filter((slice) => slice.buffer === buffer);
  const stored = elementOutputs(work);
  return outputs.every((slice) => stored.includes(slice));
}

/** The f32 results of attention, if its kernels can store them as bf16. */
function attentionResults(runtime: Runtime, work: AttentionCall): readonly Buffer[] {
  const { dtype, resultDtype = dtype } = work.shape;
  if (!capabilitiesOf(runtime).storesHalfAttention || dtype !== "f32" || resultDtype !== dtype) return [];
  return resultsOf(work).map(({ buffer }) => buffer);
}

function gemmResult(runtime: Runtime, work: GemmCall | GemmEpilogueCall): readonly Buffer[] {
  if (work.kind === "gemm-epilogue" && !work.epilogue.storesC) return [];
  const { dtype, resultDtype = dtype, m, n, batch = 1, a, c, beta = 0, activation } = work.problem;
  const { buffer } = c.slice;
  const elements = batch === 1 ? m * c.rowStride : batch * m * n;
  const fillsAll =
    isSameSlice(c.slice, { buffer, offset: 0, size: buffer.bytes }) && buffer.bytes === 4 * elements;
  if (dtype !== narrow || resultDtype !== "f32" || beta !== 0 || activation || buffer.storage || !fillsAll)
    return [];
  // A transposed A sums over the batch: the result is a weight gradient.
  if (a.isTransposed) return [];
  // GEMMs are slow if rows are not 16-byte aligned.
  const strides = [c.rowStride, ...(batch === 1 ? [] : [n, c.batchStride ?? 0])];
  if (strides.some((count) => count % 8 !== 0)) return [];
  const isPossible =
    work.kind === "gemm" ||
    canFuseEpilogue(runtime, describeGemm(narrowProblem(work.problem)), work.epilogue);
  return isPossible ? [buffer] : [];
}

/** The buffer of an image, channels-last or depthwise, that can be rounded at the store. */
function imageOf({ shape, operands }: ConvolutionCall): readonly Buffer[] {
  const { direction, dtype, channelsLast, depthwise, channels, outChannels } = shape;
  if (direction === "weight-gradient" || dtype !== "f32") return [];
  if (channelsLast?.operands !== narrow && !depthwise) return [];
  const slice = operands[writtenOperand[direction]];
  const { buffer } = slice;
  const isAligned = depthwise !== undefined || (direction === "forward" ? outChannels : channels) % 8 === 0;
  const fillsAll = isSameSlice(slice, { buffer, offset: 0, size: buffer.bytes });
  return isAligned && fillsAll && !buffer.storage ? [buffer] : [];
}

/**
 * True if the value, or an elementwise function of it, reaches persistent memory: a result or a gradient. A function of a small part of it
 * is another value, such as a running mean, which is a sum of the channel's distances from its first element.
 */
function isKept(program: Program, from: Buffer): boolean {
  const reached = new Set([from]);
  for (const buffer of reached) {
    for (const { call, accesses } of program.uses(buffer).readers) {
      if (!["row", "gemm-epilogue", "copy", "launch"].includes(call.work.kind)) continue;
      if (!readsMuch(accesses, buffer)) continue;
      for (const { slice, writes } of accesses) {
        if (writes && slice.buffer.storage) return true;
        if (writes && isElementwise(call.work, buffer)) reached.add(slice.buffer);
      }
    }
  }
  return false;
}

/** A part of a buffer that is smaller than this share of it is small. */
const smallShare = 1 / 16;

function readsMuch(accesses: readonly Access[], buffer: Buffer): boolean {
  return accesses.some(
    ({ slice, reads }) => reads && slice.buffer === buffer && slice.size >= smallShare * buffer.bytes,
  );
}

/**
 * True if a call's results are elementwise functions of a buffer. An epilogue's are; what its GEMM multiplies is not. Several views of it,
 * such as the elements of windows, are reduced.
 */
function isElementwise(work: Work, of: Buffer): boolean {
  if (work.kind === "gemm-epilogue") return work.operands.some(({ buffer }) => buffer === of);
  if (work.kind !== "row" || !factsOf(work.kernel).isElementwise) return false;
  const [first, ...others] = work.operands
    .slice(0, work.kernel.inputs.length)
    .filter(({ buffer }) => buffer === of);
  return others.every((slice) => first && isSameSlice(first, slice));
}

/** True if a call can convert a buffer's elements to f32 at every load. */
function canRead(runtime: Runtime, { work }: Call, buffer: Buffer): boolean {
  const isNarrow = (slice: BufferSlice): boolean => slice.buffer === buffer;
  switch (work.kind) {
    case "row":
    case "column":
      return isLoaded(work.kernel, work.operands, isNarrow);
    case "gemm-epilogue": {
      const { problem, epilogue } = work;
      const { a, b, bias } = problem;
      if ([a.slice, b.slice, ...(bias ? [bias] : [])].some(isNarrow)) return false;
      if (!isLoaded(epilogue.kernel, work.operands, isNarrow)) return false;
      const kernel = narrowKernel(epilogue.kernel, work.operands, isNarrow);
      return canFuseEpilogue(runtime, describeGemm(problem), { ...epilogue, kernel });
    }
    case "attention":
      return readAsHalves(work, narrow, isNarrow) !== undefined;
    case "convolution":
      return readsAsImage(work, buffer);
    default:
      return false;
  }
}

/** True if the buffer is an image that a depthwise convolution reads in f32, wherever it is an operand. Weights stay f32. */
function readsAsImage({ shape, operands }: ConvolutionCall, buffer: Buffer): boolean {
  const written = writtenOperand[shape.direction];
  return (
    shape.depthwise !== undefined &&
    Object.entries(operands).every(
      ([name, slice]) =>
        slice.buffer !== buffer ||
        ((name === "x" || name === "y") && name !== written && storedDtype(shape, name) === "f32"),
    )
  );
}

/** True if the buffer is an f32 input wherever it is an operand. */
function isLoaded(
  kernel: RowKernel | ColumnKernel,
  operands: readonly BufferSlice[],
  isNarrow: (slice: BufferSlice) => boolean,
): boolean {
  return operands.every((slice, index) => !isNarrow(slice) || kernel.inputs[index] === "f32");
}
