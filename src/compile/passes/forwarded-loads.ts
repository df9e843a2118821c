/**
 * Kernels that read an output again (store-to-load forwarding) get what was stored. A pass that changes how an output is stored gives them
 * the value before it.
 */

import { type Axis, type Expression, type RowKernel, type Stage, term } from "../../ir/index.js";
import { Interner } from "../fusion/vertical/interner.js";
import { forwardedOutput, type RowCall } from "../program/program.js";

/** The call without inputs that read an output again: later stages use the value itself. They must be read at the current element. */
export function withoutForwardedLoads(work: RowCall, inputs: readonly number[]): RowCall {
  if (inputs.length === 0) return work;
  const outputs = new Map(inputs.map((input) => [input, forwardedOutput(work, input)]));
  return withoutOperands(
    { ...work, kernel: variantOf(work.kernel, `${[...outputs]}`, (kernel) => forward(kernel, outputs)) },
    inputs,
  );
}

/** The call without an output, whose value no input reads again. */
export function withoutOutput(work: RowCall, output: number): RowCall {
  const kernel = variantOf(work.kernel, `without ${output}`, (full) => ({
    ...full,
    outputs: full.outputs.filter((_, index) => index !== output),
    stages: full.stages.flatMap((stage): Stage | [] => {
      if (stage.kind !== "store") return stage;
      if (stage.output === output) return [];
      return { ...stage, output: stage.output - Number(stage.output > output) };
    }),
  }));
  return withoutOperands({ ...work, kernel }, [work.kernel.inputs.length + output]);
}

function forward(kernel: RowKernel, outputs: ReadonlyMap<number, number | undefined>): RowKernel {
  const interner = new Interner();
  const stored = new Map<number | undefined, Expression>();
  const dropped = [...outputs.keys()];
  const rewrite = (value: Expression): Expression =>
    interner.rewrite(value, {
      load(input, type, at) {
        const known = stored.get(outputs.get(input));
        return known ?? term.load(input - dropped.filter((other) => other < input).length, type, at);
      },
      scalar: term.scalar,
      reduced: term.reduced,
    });
  const stages = kernel.stages.map((stage): Stage => {
    const value = rewrite(stage.value);
    if (stage.kind === "store") stored.set(stage.output, value);
    return { ...stage, value };
  });
  return { ...kernel, inputs: kernel.inputs.filter((_, input) => !outputs.has(input)), stages };
}

/** The operands and their strides without some; the kernel has none of these. */
function withoutOperands({ iteration, operands, ...work }: RowCall, dropped: readonly number[]): RowCall {
  const isKept = (_: unknown, operand: number): boolean => !dropped.includes(operand);
  const axisOf = ({ size, strides }: Axis): Axis => ({ size, strides: strides.filter(isKept) });
  return {
    ...work,
    operands: operands.filter(isKept),
    iteration: { ...iteration, outer: iteration.outer.map(axisOf), row: axisOf(iteration.row) },
  };
}

const known = new WeakMap<RowKernel, Map<string, RowKernel>>();

/** Compiled code is cached by kernel identity, so each variant of a kernel is made once. */
export function variantOf(kernel: RowKernel, key: string, make: (kernel: RowKernel) => RowKernel): RowKernel {
  const variants = known.get(kernel) ?? new Map<string, RowKernel>();
  known.set(kernel, variants);
  const variant = variants.get(key) ?? make(kernel);
  variants.set(key, variant);
  return variant;
}
