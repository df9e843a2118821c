/**
 * Turns weights round for products that read them along their terms and would otherwise have to turn them tile by tile: all in one
 * launch, once a step, where many rows are multiplied by each. Which products gain by it is for their kernels to say.
 */

import { dtypes } from "../../ir/index.js";
import {
  maxTransposes,
  prefersTransposedB,
  type TransposedMatrix,
  transposeLaunchOf,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { literalKey } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { transposeLead } from "../cost-model.js";
import type { BufferSlice, Call, GemmCall } from "../program/program.js";
import { bufferMaker, isUnchanged, usesOf } from "../program/uses.js";

type Problem = GemmCall["problem"];

export function pretransposeWeights(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const makeBuffer = bufferMaker(calls);
  const matrices: TransposedMatrix<BufferSlice>[] = [];
  const turned = new Map<string, BufferSlice>();
  const changes = new Map<number, Call>();
  for (const [place, call] of calls.entries()) {
    if (call.work.kind !== "gemm") continue;
    const { problem } = call.work;
    const { n, k, b, batch = 1 } = problem;
    const areShared = b.batchStride === 0;
    const count = areShared ? 1 : batch;
    if (!isUnchanged(uses, b.slice.buffer, place) || !prefersTransposedB(runtime, describeGemm(problem)))
      continue;
    const key = literalKey([b.slice.buffer.id, b.slice.offset, b.rowStride, b.batchStride, n, k, count]);
    const known = turned.get(key);
    if (!known && matrices.length + count > maxTransposes) continue;
    const slice = known ?? turn(problem, count, makeBuffer, matrices);
    turned.set(key, slice);
    const strides = { rowStride: k, ...(batch > 1 && { batchStride: areShared ? 0 : n * k }) };
    const transposedProblem = { ...problem, b: { slice, isTransposed: true, ...strides } };
    const own = withScratch(runtime, transposedProblem, makeBuffer);
    changes.set(place, { ...call, work: { kind: "gemm", problem: own } });
  }
  const [first] = changes.keys();
  if (first === undefined) return calls;
  const { source, blocks, arguments: given } = transposeLaunchOf(matrices);
  const turning: Call = {
    op: "turned weights",
    work: { kind: "launch", kernel: runtime.kernel(source), blocks, arguments: given },
  };
  const changed = calls.map((call, place) => changes.get(place) ?? call);
  return changed.toSpliced(Math.max(0, first - transposeLead), 0, turning);
}

/** Notes what has to be turned for a product's right side, and gives the place where it will lie. */
function turn(
  { n, k, b, dtype }: Problem,
  count: number,
  makeBuffer: ReturnType<typeof bufferMaker>,
  matrices: TransposedMatrix<BufferSlice>[],
): BufferSlice {
  const { bytes } = dtypes[dtype];
  const [ownBytes, size] = [((k - 1) * b.rowStride + n) * bytes, n * k * bytes];
  const buffer = makeBuffer(count * size, "turned weights");
  for (let index = 0; index < count; index++) {
    const offset = b.slice.offset + index * (b.batchStride ?? 0) * bytes;
    matrices.push({
      from: { buffer: b.slice.buffer, offset, size: ownBytes },
      to: { buffer, offset: index * size, size },
      ...{ rows: k, columns: n, rowStride: b.rowStride },
    });
  }
  return { buffer, offset: 0, size: count * size };
}
