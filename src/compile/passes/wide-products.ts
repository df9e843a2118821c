/**
 * Products of one left matrix with right ones that lie side by side are one wide product: a batch of small ones leaves most
 * of a GPU idle. The results, which are wanted one behind the other, are taken apart afterwards.
 */

import {
  type Dtype,
  dtypes,
  gemmScratchBytes,
  iterateElements,
  type RowKernel,
  term,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { outlineOf } from "../product-times.js";
import type { Buffer, Call, ProductCall, RowCall } from "../program.js";

/** On a GPU; the CPU's own kernels work through a batch as well as through one wide product. */
export function widenProducts(calls: readonly Call[], runtime: Runtime): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  return calls.flatMap((call) =>
    call.work.kind === "product" ? (widen(runtime, call, call.work) ?? [call]) : [call],
  );
}

function widen(runtime: Runtime, call: Call, { problem }: ProductCall): readonly Call[] | undefined {
  const { m, n, batch = 1, a, b, c, beta = 0, bias, activation, dtype, resultDtype = dtype } = problem;
  const areBeside = b.batchStride === n && !b.isTransposed && b.rowStride >= batch * n;
  const isPlain = beta === 0 && !bias && !activation && a.batchStride === 0;
  const areBehind = c.batchStride === m * n && c.rowStride === n;
  if (batch < 2 || !areBeside || !isPlain || !areBehind) return undefined;
  const wide = batch * n;
  const { bytes } = dtypes[resultDtype];
  const buffer: Buffer = { id: nextId(), bytes: m * wide * bytes, label: `${call.op} side by side` };
  const part = { buffer, offset: 0, size: buffer.bytes };
  const { scratch: _, ...rest } = problem;
  const widened: ProductCall["problem"] = {
    ...{ ...rest, batch: 1, n: wide },
    ...{ b: { ...b, batchStride: 0 }, c: { part, rowStride: wide, batchStride: 0 } },
  };
  const size = gemmScratchBytes(runtime, outlineOf(widened));
  const room: Buffer = { id: nextId(), bytes: size, label: `${call.op} scratch` };
  const scratch = size > 0 && { scratch: { buffer: room, offset: 0, size } };
  const product: ProductCall = { kind: "product", problem: { ...widened, ...scratch } };
  const apart: RowCall = {
    kind: "rows",
    kernel: copyKernel(resultDtype),
    iteration: iterateElements(
      [batch, m, n],
      [
        [n, wide, 1],
        [m * n, n, 1],
      ],
    ),
    operands: [part, c.part],
    scalars: [],
  };
  return [
    { ...call, work: product },
    { op: call.op, work: apart },
  ];
}

/** Of step buffers, which are told apart by identity; one of its own for messages. */
let made = 0;
const nextId = (): number => 2_000_000_000 + made++;

const kernels = new Map<Dtype, RowKernel>();

function copyKernel(dtype: Dtype): RowKernel {
  const known = kernels.get(dtype);
  if (known) return known;
  const kernel: RowKernel = {
    name: "apart",
    inputs: [dtype],
    outputs: [{ dtype, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: term.load(0, dtypes[dtype].compute) }],
  };
  kernels.set(dtype, kernel);
  return kernel;
}
