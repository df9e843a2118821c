/**
 * Runs op cases on a device: uploads the operands in their layouts, calls the op, and runs backward with a
 * random gradient.
 */

import { Value } from "../../src/autograd/index.js";
import type { Dtype } from "../../src/ir/index.js";
import { type Op, type Shape, viewArray } from "../../src/ops/index.js";
import type { Device, Tensor } from "../../src/tensor/index.js";
import type { FloatDtype } from "../tolerances.js";
import { broadcastAxis, randomFrom } from "./op-cases/arbitraries.js";
import type { CaseCall, CaseOperand, LayoutName, TensorOperand } from "./op-cases/op-case.js";

type Elements = ReturnType<Tensor["dataSync"]>;

/** An operand on a device, with access to its memory. */
export interface UploadedOperand {
  readonly tensor: Tensor;
  /** The index of each element in `memory`, in row-major order; broadcast elements share one. */
  readonly indices: readonly number[];
  /** All elements of its memory, gaps included. */
  readonly memory: Float64Array;
  /** Uploads `memory` again, after a test has changed it. */
  rewrite(): void;
}

interface MemoryLayout {
  readonly strides: readonly number[];
  readonly offset: number;
  /** How many elements the memory has. */
  readonly length: number;
}

/**
 * The value between elements, where no op may read: NaN if the dtype has it, otherwise a number that no test
 * expects.
 */
const gapOf: Readonly<Record<Dtype, number>> = {
  f32: Number.NaN,
  f64: Number.NaN,
  f16: Number.NaN,
  bf16: Number.NaN,
  i64: -1_000_000_007,
  i32: -1_000_000_007,
  i8: 101,
  u8: 251,
  f8e4m3: Number.NaN,
  f8e5m2: Number.NaN,
  bool: 1,
};

export function dtypeOf(operand: TensorOperand, float: FloatDtype): Dtype {
  return operand.dtype === "float" ? float : operand.dtype;
}

export function uploadOperand(device: Device, operand: TensorOperand, float: FloatDtype): UploadedOperand {
  const { shape, values, layout } = operand;
  const dtype = dtypeOf(operand, float);
  const { strides, offset, length } = layoutOf(shape, layout);
  const indices = indicesOf(shape, strides, offset);
  const memory = new Float64Array(length).fill(gapOf[dtype]);
  for (const [index, at] of indices.entries()) memory[at] = values[index]!;
  const whole = device.fromHost(memory, [length], dtype, "operand");
  const { runtime } = device;
  const tensor = device.wrap(
    new Value(viewArray(runtime, whole.array, { shape, strides, offset }, "operand")),
  );
  const { storage } = whole.array;
  return {
    tensor,
    indices,
    memory,
    rewrite() {
      if (!storage) return;
      // Only f64 operands are ever changed: central differences need it.
      runtime.upload([{ source: memory, target: storage }]);
    },
  };
}

export interface CaseRun {
  /** Every output of the call, on the host. */
  readonly outputs: readonly Elements[];
  readonly outputTypes: readonly { readonly shape: Shape; readonly dtype: Dtype }[];
  /** The upstream gradients, one for each output that takes one. */
  readonly upstreams: readonly (readonly number[] | undefined)[];
  /** The gradients of the operands, by index; undefined if none was requested or none arrived. */
  readonly gradients: readonly (Elements | undefined)[];
  readonly uploaded: readonly (UploadedOperand | undefined)[];
}

export interface RunOptions {
  readonly float: FloatDtype;
  /** The operands that require a gradient. */
  readonly wanted: readonly number[];
}

/** Calls the op on the operands, then backward with an upstream gradient that depends on the call's sizes. */
export function runCase(
  device: Device,
  op: Op,
  { operands, attributes }: CaseCall,
  options: RunOptions,
): CaseRun {
  const { float, wanted: requiresGrad } = options;
  const uploaded = operands.map((operand) =>
    typeof operand === "object" ? uploadOperand(device, operand, float) : undefined,
  );
  for (const index of requiresGrad) {
    const { tensor } = uploaded[index]!;
    tensor.requiresGrad = true;
  }
  const outputs = callOp(device, op, operands, uploaded, attributes);
  const runsBackward = requiresGrad.length > 0;
  const upstreams = outputs.map((output, index) => {
    if (!runsBackward || !output.requiresGrad) return undefined;
    const upstream = randomUpstream(output.shape, index);
    const gradient = uploadOperand(device, upstream, output.dtype as FloatDtype).tensor;
    output.backward(gradient, { retainGraph: index < outputs.length - 1 });
    return upstream.values;
  });
  return {
    outputs: outputs.map((output) => output.dataSync()),
    outputTypes: outputs.map(({ shape, dtype }) => ({ shape, dtype })),
    upstreams,
    gradients: uploaded.map((operand, index) =>
      requiresGrad.includes(index) ? operand?.tensor.grad?.dataSync() : undefined,
    ),
    uploaded,
  };
}

/** A call with what is known of its outputs, such as from the CPU. */
export interface KnownCall {
  readonly op: Op;
  readonly call: CaseCall;
  readonly wanted: readonly number[];
  readonly outputTypes: CaseRun["outputTypes"];
}

/**
 * Calls many ops in one compiled step, each with its backward pass as in `runCase`: on a GPU their kernels
 * share launches, so there are few to compile. No call may have a random state, which a step can't reset.
 */
export function runInOneStep(
  device: Device,
  calls: readonly KnownCall[],
  float: FloatDtype,
): readonly Pick<CaseRun, "outputs" | "outputTypes" | "gradients">[] {
  const prepared = calls.map(({ op, call: { operands, attributes }, wanted, outputTypes }) => {
    const uploaded = operands.map((operand) =>
      typeof operand === "object" ? uploadOperand(device, operand, float) : undefined,
    );
    for (const index of wanted) uploaded[index]!.tensor.requiresGrad = true;
    const upstreams = outputTypes.map(({ shape, dtype }, index) =>
      wanted.length > 0 && isFloat(dtype)
        ? uploadOperand(device, randomUpstream(shape, index), dtype).tensor
        : undefined,
    );
    const run = (): readonly Tensor[] => {
      const outputs = callOp(device, op, operands, uploaded, attributes);
      for (const [index, output] of outputs.entries()) {
        if (!output.requiresGrad) continue;
        output.backward(upstreams[index]!, { retainGraph: index < outputs.length - 1 });
      }
      return outputs;
    };
    return { run, uploaded, wanted, count: outputTypes.length };
  });
  // Each op keeps its own kernels, as it has them alone.
  const passes = { verticalFusion: false } as const;
  const step = device.compile(() => prepared.flatMap(({ run }) => run()), { passes });
  const all = [...step()];
  const results = prepared.map(({ uploaded, wanted, count }) => {
    const outputs = all.splice(0, count);
    return {
      outputs: outputs.map((output) => output.dataSync()),
      outputTypes: outputs.map(({ shape, dtype }) => ({ shape, dtype })),
      gradients: uploaded.map((operand, index) =>
        wanted.includes(index) ? operand?.tensor.grad?.dataSync() : undefined,
      ),
    };
  });
  step.close();
  return results;
}

/** Calls the op again on uploaded operands. */
export function callOp(
  device: Device,
  op: Op,
  operands: readonly CaseOperand[],
  uploaded: readonly (UploadedOperand | undefined)[],
  attributes: CaseCall["attributes"],
): readonly Tensor[] {
  // Random ops must give the same result each time.
  if (operands.includes("randomState")) device.reseed(7n);
  const args = operands.map((operand, index) => {
    if (operand === "randomState") return device.randomState;
    return typeof operand === "number" ? operand : uploaded[index]!.tensor;
  });
  const outputs = device.applyAll(op, args, attributes);
  // A kernel's further outputs are for its own gradient.
  return op.kind === "composite" ? outputs : outputs.slice(0, 1);
}

const isFloat = (dtype: Dtype): dtype is FloatDtype => /f\d+$/.test(dtype);

/** A gradient of random numbers, in some layout: gradient rules get theirs from any op. */
function randomUpstream(shape: Shape, index: number): TensorOperand {
  const count = shape.reduce((total, size) => total * size, 1);
  const random = randomFrom(1 + count + 31 * index);
  const layouts = ["contiguous", "transposed", "broadcast", "offset"] as const;
  const layout = layouts[Math.floor(layouts.length * random())]!;
  const numbers = Array.from({ length: count }, () => Math.fround(2 * random() - 1));
  const axis = layout === "broadcast" ? broadcastAxis(shape) : undefined;
  const inner = axis === undefined ? count : shape.slice(axis + 1).reduce((total, size) => total * size, 1);
  return { shape, values: numbers.map((_, at) => numbers[at % inner]!), dtype: "float", layout };
}

/** The mapping of a shape to memory in a layout. */
function layoutOf(shape: Shape, layout: LayoutName): MemoryLayout {
  const rank = shape.length;
  const axes = Array.from({ length: rank }, (_, axis) => axis);
  // From the fastest axis to the slowest.
  const order = layout === "transposed" ? axes : axes.reverse();
  const strides: number[] = new Array(rank).fill(0);
  let step = layout === "stepped" ? 2 : 1;
  for (const [depth, axis] of order.entries()) {
    if (layout === "broadcast" && axis === broadcastAxis(shape)) continue;
    strides[axis] = step;
    step *= shape[axis] ?? 1;
    if (layout === "offset" && depth === 0) step += 3;
  }
  const offset = layout === "offset" ? 3 : 0;
  const isEmpty = shape.includes(0);
  const last = shape.reduce((sum, size, axis) => sum + (size - 1) * strides[axis]!, offset);
  return { strides, offset, length: isEmpty ? 0 : last + 1 + offset };
}

function indicesOf(shape: Shape, strides: readonly number[], offset: number): readonly number[] {
  let indices = [offset];
  for (const [axis, size] of shape.entries()) {
    const stride = strides[axis]!;
    const next: number[] = [];
    for (const start of indices) for (let index = 0; index < size; index++) next.push(start + index * stride);
    indices = next;
  }
  return indices;
}

/** Describes a call in a line, for messages. */
export function describeCall(op: Op, { operands, attributes }: CaseCall): string {
  const texts = operands.map((operand) =>
    typeof operand === "object"
      ? `${operand.layout} ${operand.dtype} [${operand.shape.join(", ")}]`
      : String(operand),
  );
  return `${op.name}(${texts.join("; ")}) ${JSON.stringify(attributes)}`;
}
