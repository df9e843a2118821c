/** From kernel calls on storages to the work of a program on slices. */

import { HoldfastError } from "../../errors/index.js";
import type {
  GemmInputDtype,
  GemmProblem,
  KernelCall,
  LoopCall as LoopToTrace,
} from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { type BodyCall, operandBuffer } from "../program/kinds/loop.js";
import type { BufferSlice, ColumnCall, GemmCall, LoopCall, RowCall } from "../program/program.js";

type SliceOf = (storage: Storage) => BufferSlice;
type Traced<K extends KernelCall["kind"]> = Extract<KernelCall, { readonly kind: K }>;

/** The work of a kernel of the loop IR, or of a GEMM. */
export function kernelWork(
  call: Traced<"row" | "column" | "gemm">,
  sliceOf: SliceOf,
): RowCall | ColumnCall | GemmCall {
  switch (call.kind) {
    case "row": {
      const { kernel, iteration, operands, scalars = [] } = call;
      return { kind: "row", kernel, iteration, scalars, operands: operands.map(sliceOf) };
    }
    case "column": {
      const { kernel, rows, columns, strides, runs, operands, scalars = [] } = call;
      return {
        ...{ kind: "column", kernel, rows, columns, scalars, ...(runs && { runs }) },
        strides: strides.map(({ row, column, run }) => ({ row, column, ...(run !== undefined && { run }) })),
        operands: operands.map(sliceOf),
      };
    }
    case "gemm":
      return gemmWork(call.problem, sliceOf);
  }
}

function gemmWork(
  { a, b, c, bias, scratch, ...rest }: GemmProblem<GemmInputDtype>,
  sliceOf: SliceOf,
): GemmCall {
  const matrix = ({ storage, rowStride, isTransposed = false, batchStride = 0 }: typeof a) => ({
    ...{ rowStride, isTransposed, batchStride },
    slice: sliceOf(storage),
  });
  return {
    kind: "gemm",
    problem: {
      ...rest,
      ...{ a: matrix(a), b: matrix(b), c: matrix(c) },
      ...(bias && { bias: sliceOf(bias) }),
      ...(scratch && { scratch: sliceOf(scratch) }),
    },
  };
}

/** The work of a loop: its body works on buffers that represent the operands. */
export function loopWork({ op, count, operands, body, views }: LoopToTrace, sliceOf: SliceOf): LoopCall {
  const buffers = operands.map(({ storage }, index) => operandBuffer(index, storage.span.size));
  const sliceInBody: SliceOf = (storage) => {
    const view = views.get(storage);
    const buffer = view && buffers[view.operand];
    if (!buffer) throw badBody(op, `uses "${storage.label}", which is no view of an operand`);
    return { buffer, offset: view.offset, size: storage.span.size };
  };
  return {
    ...{ kind: "loop", count },
    operands: operands.map(({ storage, access, stride }) => ({ slice: sliceOf(storage), access, stride })),
    body: body.map((call) => bodyWork(op, call, sliceInBody)),
  };
}

function bodyWork(op: string, call: KernelCall, sliceOf: SliceOf): BodyCall {
  switch (call.kind) {
    case "row":
    case "column":
    case "gemm":
      return kernelWork(call, sliceOf);
    case "fill":
      return { kind: "fill", target: sliceOf(call.target), byte: call.byte };
    case "copy":
      return { kind: "copy", target: sliceOf(call.target), source: sliceOf(call.source) };
    default:
      throw badBody(op, `has a call of the kind "${call.kind}"`);
  }
}

function badBody(op: string, what: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `${op}: the body of its loop ${what}.`, { numbers: { op } });
}
