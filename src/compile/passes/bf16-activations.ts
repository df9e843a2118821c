/**
 * In bf16 precision on a GPU, GEMM results that only pass from one kernel to the next are stored as bf16: half the memory traffic.
 * Accumulators are f32 and are rounded once, at the store. In-place sums, values that are kept and weight gradients stay f32.
 *
 * A column reduction, such as the gradient of a bias, loads bf16 and accumulates f32. Its inputs are rounded as in PyTorch's autocast, where
 * every gradient of a linear layer's input is bf16.
 */

import { biasAlignment } from "../../driver/index.js";
import {
  type ColumnKernel,
  factsOf,
  type InputDtype,
  iterateElements,
  type RowKernel,
  term,
} from "../../ir/index.js";
import {
  canFuseEpilogue,
  capabilitiesOf,
  hasNativeGemm,
  storedDtype,
  writtenOperand,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { type Cast, castOf } from "../program/casts.js";
import { readAsHalves } from "../program/kinds/attention.js";
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
import { isUnchangedBefore, isWrittenOnce } from "../program/uses.js";

const narrow = "bf16";

/** `only`: the ids of the buffers that may become bf16; default: all. */
export function storeActivationsAsBf16(runtime: Runtime, program: Program, only?: ReadonlySet<number>): void {
  if (!capabilitiesOf(runtime).multipliesHalfFloats || runtime.settings.precision !== narrow) return;
  const halves = new Map<Buffer, Buffer>();
  for (const { call } of program.nodes) {
    const buffer = resultOf(runtime, call);
    if (!buffer || !isWrittenOnce(program, buffer) || isKept(program, buffer)) continue;
    if (only && !only.has(buffer.id)) continue;
    const { readers } = program.uses(buffer);
    if (readers.length > 0 && readers.every((reader) => canRead(runtime, reader.call, buffer)))
      halves.set(buffer, program.makeBuffer(buffer.bytes / 2, buffer.label));
  }
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
  const resultsIn = (calls: readonly Call[]): number[] =>
    calls.flatMap(({ work }) => {
      if (work.kind === "convolution") return [work.operands[writtenOperand[work.shape.direction]].buffer.id];
      return work.kind === "gemm" || (work.kind === "gemm-epilogue" && work.epilogue.storesC)
        ? [work.problem.c.slice.buffer.id]
        : [];
    });
  const left = new Set(resultsIn(after));
  return new Set(resultsIn(before).filter((id) => !left.has(id)));
}

/** The buffer of a GEMM result that can be rounded at the store. */
function resultOf(runtime: Runtime, { work }: Call): Buffer | undefined {
  if (work.kind === "convolution") return imageOf(work);
  if (work.kind !== "gemm" && !(work.kind === "gemm-epilogue" && work.epilogue.storesC)) return undefined;
  const { dtype, resultDtype = dtype, m, n, batch = 1, a, c, beta = 0, activation } = work.problem;
  const { buffer } = c.slice;
  const fillsAll =
    isSameSlice(c.slice, { buffer, offset: 0, size: buffer.bytes }) && buffer.bytes === 4 * batch * m * n;
  if (dtype !== narrow || resultDtype !== "f32" || beta !== 0 || activation || buffer.storage || !fillsAll)
    return undefined;
  // A transposed A sums over the batch: the result is a weight gradient.
  if (a.isTransposed) return undefined;
  // GEMMs are slow if rows are not 16-byte aligned.
  if ([n, c.rowStride, c.batchStride ?? 0].some((count) => count % 8 !== 0)) return undefined;
  const isPossible =
    work.kind === "gemm" ||
    canFuseEpilogue(runtime, describeGemm(narrowProblem(work.problem)), work.epilogue);
  return isPossible ? buffer : undefined;
}

/** The buffer of an image, channels-last or depthwise, that can be rounded at the store. */
function imageOf({ shape, operands }: ConvolutionCall): Buffer | undefined {
  const { direction, dtype, channelsLast, depthwise, channels, outChannels } = shape;
  if (direction === "weight-gradient" || dtype !== "f32") return undefined;
  if (channelsLast?.operands !== narrow && !depthwise) return undefined;
  const slice = operands[writtenOperand[direction]];
  const { buffer } = slice;
  const isAligned = depthwise !== undefined || (direction === "forward" ? outChannels : channels) % 8 === 0;
  const fillsAll = isSameSlice(slice, { buffer, offset: 0, size: buffer.bytes });
  return isAligned && fillsAll && !buffer.storage ? buffer : undefined;
}

/** True if the value, or an elementwise function of it, reaches persistent memory: a result or a gradient. */
function isKept(program: Program, from: Buffer): boolean {
  const reached = new Set([from]);
  for (const buffer of reached) {
    for (const { call, accesses } of program.uses(buffer).readers) {
      if (!["row", "gemm-epilogue", "copy", "launch"].includes(call.work.kind)) continue;
      for (const { slice, writes } of accesses) {
        if (writes && slice.buffer.storage) return true;
        if (writes && isElementwise(call.work, buffer)) reached.add(slice.buffer);
      }
    }
  }
  return false;
}

/** True if a call's results are elementwise functions of a buffer. An epilogue's are; what its GEMM multiplies is not. */
function isElementwise(work: Work, of: Buffer): boolean {
  if (work.kind === "gemm-epilogue") return work.operands.some(({ buffer }) => buffer === of);
  return work.kind === "row" && factsOf(work.kernel).isElementwise;
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

/** True if the buffer is an f32 input wherever it is an operand. */
function isLoaded(
  kernel: RowKernel | ColumnKernel,
  operands: readonly BufferSlice[],
  isNarrow: (slice: BufferSlice) => boolean,
): boolean {
  return operands.every((slice, index) => !isNarrow(slice) || kernel.inputs[index] === "f32");
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
      return readAsHalves(work, narrow, isNarrow) ?? work;
    default:
      return work;
  }
}

/** The bias stays f32. */
function narrowProblem(problem: GemmCall["problem"]): GemmCall["problem"] {
  return { ...problem, resultDtype: narrow, ...(problem.bias && { biasDtype: "f32" }) };
}

const castKernel: RowKernel = {
  ...{ name: `f32 to ${narrow}`, inputs: ["f32"], scalars: [] },
  outputs: [{ dtype: narrow, per: "element" }],
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** With the bias as bf16: cuBLASLt needs the dtype of the result. A cast of weights often has it already. */
function withNarrowBias(program: Program, node: Node, problem: GemmCall["problem"]): GemmCall["problem"] {
  const { bias } = problem;
  if (!bias) return problem;
  return {
    ...problem,
    biasDtype: narrow,
    bias: castBefore(program, node, bias) ?? insertCast(program, node, bias),
  };
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

const known = new WeakMap<RowKernel | ColumnKernel, Map<string, RowKernel | ColumnKernel>>();

/** A kernel that loads some inputs as bf16. Compiled code is cached by kernel identity, so each variant is made once. */
export function narrowKernel<K extends RowKernel | ColumnKernel>(
  kernel: K,
  operands: readonly BufferSlice[],
  isNarrow: (slice: BufferSlice) => boolean,
): K {
  const inputs = kernel.inputs.map((dtype, index): InputDtype => {
    const slice = operands[index];
    return slice && isNarrow(slice) ? narrow : dtype;
  });
  const variants = (known.get(kernel) as Map<string, K> | undefined) ?? new Map<string, K>();
  known.set(kernel, variants);
  const key = inputs.join();
  const variant = variants.get(key) ?? { ...kernel, inputs };
  variants.set(key, variant);
  return variant;
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
