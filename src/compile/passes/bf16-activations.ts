/**
 * Where the user lets a GPU multiply in bf16, results of products that only pass from one kernel to the next lie between them
 * as bf16: half the bytes to write and to read again. The sums behind them are f32 and rounded once, as they are stored;
 * what is added up, normed or kept stays f32, and so do the gradients of weights.
 */

import { type Dtype, factsOf, type RowKernel } from "../../ir/index.js";
import { gemmFinishes, gemmIsOwn } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { outlineOf } from "../autotune/gemm-times.js";
import { castOf } from "../fusion/coalesce-casts.js";
import { readAsHalves } from "../program/attention-call.js";
import {
  accessesOf,
  type Buffer,
  type Call,
  isSamePart,
  mapParts,
  type Part,
  type ProductCall,
  type Work,
} from "../program/program.js";
import { bufferMaker, isMadeOnce, type Uses, usesOf } from "../program/uses.js";

const narrow = "bf16";

/** `only`: the numbers of the buffers that may become bf16, where they are known already. */
export function narrowResults(
  runtime: Runtime,
  calls: readonly Call[],
  only?: ReadonlySet<number>,
): readonly Call[] {
  if (runtime.device.kind !== "cuda" || runtime.settings.precision !== narrow) return calls;
  const uses = usesOf(calls);
  const makeBuffer = bufferMaker(calls);
  const halves = new Map<Buffer, Buffer>();
  for (const call of calls) {
    const buffer = resultOf(runtime, call);
    if (!buffer || !isMadeOnce(uses, buffer) || isKept(calls, uses, buffer)) continue;
    if (only && !only.has(buffer.id)) continue;
    const { readers = [] } = uses.get(buffer) ?? {};
    if (readers.length > 0 && readers.every((place) => canRead(runtime, calls[place], buffer)))
      halves.set(buffer, makeBuffer(buffer.bytes / 2, buffer.label));
  }
  if (halves.size === 0) return calls;
  const { places, sources } = needlessCasts(calls, uses, halves);
  const isNarrow = ({ buffer }: Part): boolean => halves.has(buffer);
  const moved = (part: Part): Part => {
    const buffer = halves.get(part.buffer);
    if (buffer) return { buffer, offset: part.offset / 2, size: part.size / 2 };
    return { ...part, buffer: sources.get(part.buffer) ?? part.buffer };
  };
  return calls.flatMap((call, place) => {
    if (places.has(place)) return [];
    const met = accessesOf(call).map(({ part }) => part);
    if (!met.some((part) => isNarrow(part) || sources.has(part.buffer))) return [call];
    const work = met.some(isNarrow) ? narrowWork(runtime, call.work, isNarrow, makeBuffer) : call.work;
    return [{ ...call, work: mapParts(work, moved) }];
  });
}

/** The numbers of the buffers that have become bf16 between two programs. */
export function narrowedIn(before: readonly Call[], after: readonly Call[]): ReadonlySet<number> {
  const resultsIn = (calls: readonly Call[]): number[] =>
    calls.flatMap(({ work }) =>
      work.kind === "product" || (work.kind === "finished" && work.finish.keepsResult)
        ? [work.problem.c.part.buffer.id]
        : [],
    );
  const left = new Set(resultsIn(after));
  return new Set(resultsIn(before).filter((id) => !left.has(id)));
}

/** The memory that a call fills with the result of a product, if that can be rounded as it is stored. */
function resultOf(runtime: Runtime, { work }: Call): Buffer | undefined {
  if (work.kind !== "product" && !(work.kind === "finished" && work.finish.keepsResult)) return undefined;
  const { dtype, resultDtype = dtype, m, n, batch = 1, a, c, bias, beta = 0, activation } = work.problem;
  const { buffer } = c.part;
  const fillsAll =
    isSamePart(c.part, { buffer, offset: 0, size: buffer.bytes }) && buffer.bytes === 4 * batch * m * n;
  if (dtype !== narrow || resultDtype !== "f32" || beta !== 0 || activation || buffer.storage || !fillsAll)
    return undefined;
  // With terms from all rows of a batch it is the gradient of a weight, whoever reads it.
  if (a.isTransposed) return undefined;
  // In rows that begin on fewer bytes than 16 products are slow.
  if ([n, c.rowStride, c.batchStride ?? 0].some((count) => count % 8 !== 0)) return undefined;
  const outline = outlineOf(narrowProblem(work.problem));
  // A library would want the bias as bf16, too.
  const isPossible =
    work.kind === "finished"
      ? gemmFinishes(runtime, outline, work.finish)
      : !bias || gemmIsOwn(runtime, outline);
  return isPossible ? buffer : undefined;
}

/** Does any of it end in memory that outlives the step, as it is or changed element by element: a result, or a gradient? */
function isKept(calls: readonly Call[], uses: ReadonlyMap<Buffer, Uses>, from: Buffer): boolean {
  const met = new Set([from]);
  for (const buffer of met) {
    for (const place of uses.get(buffer)?.readers ?? []) {
      const call = calls[place];
      if (!call || !["rows", "finished", "copy", "launch"].includes(call.work.kind)) continue;
      for (const { part, writes } of accessesOf(call)) {
        if (writes && part.buffer.storage) return true;
        if (writes && isElementwise(call.work, buffer)) met.add(part.buffer);
      }
    }
  }
  return false;
}

/** Is what a call stores made of a buffer element by element? A finish's is; what its product multiplies is not. */
function isElementwise(work: Work, of: Buffer): boolean {
  if (work.kind === "finished") return work.operands.some(({ buffer }) => buffer === of);
  return work.kind === "rows" && factsOf(work.kernel).isElementwise;
}

/** Can a call widen a buffer's elements as it loads them, wherever it reads them? */
function canRead(runtime: Runtime, call: Call | undefined, buffer: Buffer): boolean {
  const isNarrow = (part: Part): boolean => part.buffer === buffer;
  const work = call?.work;
  switch (work?.kind) {
    case "rows":
      return isLoaded(work.kernel, work.operands, isNarrow);
    case "finished": {
      const { problem, finish } = work;
      const { a, b, bias } = problem;
      if ([a.part, b.part, ...(bias ? [bias] : [])].some(isNarrow)) return false;
      if (!isLoaded(finish.kernel, work.operands, isNarrow)) return false;
      const kernel = narrowKernel(finish.kernel, work.operands, isNarrow);
      return gemmFinishes(runtime, outlineOf(problem), { ...finish, kernel });
    }
    case "attention":
      return readAsHalves(work, narrow, isNarrow) !== undefined;
    default:
      return false;
  }
}

/** Is it an input as f32 wherever it is an operand, and loaded from where it lies, by no index? */
function isLoaded(kernel: RowKernel, operands: readonly Part[], isNarrow: (part: Part) => boolean): boolean {
  const { isReadAtIndex } = factsOf(kernel);
  return operands.every(
    (part, index) => !isNarrow(part) || (kernel.inputs[index] === "f32" && !isReadAtIndex[index]),
  );
}

/** The same work with a product's result stored, and operands loaded, as bf16 where they lie in such memory. */
function narrowWork(
  runtime: Runtime,
  work: Work,
  isNarrow: (part: Part) => boolean,
  makeBuffer: (bytes: number, label: string) => Buffer,
): Work {
  switch (work.kind) {
    case "product":
      return { kind: "product", problem: withScratch(runtime, narrowProblem(work.problem), makeBuffer) };
    case "finished": {
      const { finish, operands, problem } = work;
      const isResult = finish.keepsResult && isNarrow(problem.c.part);
      // What the finish does to the result it does to the sums, before they are rounded.
      const others = (part: Part): boolean => isNarrow(part) && !isSamePart(part, problem.c.part);
      return {
        ...work,
        problem: isResult ? narrowProblem(problem) : problem,
        finish: { ...finish, kernel: narrowKernel(finish.kernel, operands, others) },
      };
    }
    case "rows":
      return { ...work, kernel: narrowKernel(work.kernel, work.operands, isNarrow) };
    case "attention":
      return readAsHalves(work, narrow, isNarrow) ?? work;
    default:
      return work;
  }
}

/** Biases stay as they are. */
function narrowProblem(problem: ProductCall["problem"]): ProductCall["problem"] {
  return { ...problem, resultDtype: narrow, ...(problem.bias && { biasDtype: "f32" }) };
}

const known = new WeakMap<RowKernel, Map<string, RowKernel>>();

/** A kernel that loads some of its inputs as bf16: the same one for the same inputs, which printed code is kept by. */
function narrowKernel(
  kernel: RowKernel,
  operands: readonly Part[],
  isNarrow: (part: Part) => boolean,
): RowKernel {
  const inputs = kernel.inputs.map((dtype, index): Dtype => {
    const part = operands[index];
    return part && isNarrow(part) ? narrow : dtype;
  });
  const variants = known.get(kernel) ?? new Map<string, RowKernel>();
  known.set(kernel, variants);
  const key = inputs.join();
  const variant = variants.get(key) ?? { ...kernel, inputs };
  variants.set(key, variant);
  return variant;
}

/** Conversions to bf16 of what is that already: what they would write, and where that lies. */
function needlessCasts(
  calls: readonly Call[],
  uses: ReadonlyMap<Buffer, Uses>,
  halves: ReadonlyMap<Buffer, Buffer>,
): { readonly places: ReadonlySet<number>; readonly sources: ReadonlyMap<Buffer, Buffer> } {
  const [places, sources] = [new Set<number>(), new Map<Buffer, Buffer>()];
  for (const [place, { work }] of calls.entries()) {
    const cast = work.kind === "rows" ? castOf(work, place) : undefined;
    const source = cast && halves.get(cast.from.buffer);
    if (!source || cast.from.size !== cast.from.buffer.bytes) continue;
    const { buffer } = cast.to;
    if (cast.call.kernel.outputs[0]?.dtype !== narrow || !isMadeOnce(uses, buffer)) continue;
    places.add(place);
    sources.set(buffer, source);
  }
  return { places, sources };
}
