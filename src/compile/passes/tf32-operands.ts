/**
 * In TF32, images and gradients that only convolutions multiply are stored rounded to TF32 by the kernel that computes them: one more
 * instruction for each element. Otherwise the convolution rounds them in shared memory, once for each tap. Both round alike, so that no bit
 * of a convolution changes. GEMMs need no such pass: TMA rounds while it copies.
 *
 * Other readers must get the f32 values. Those that test for signs get the same answers from 2⁻¹³⁷ on. A sum of the gradient of a
 * convolution's result is the gradient of its bias: the product with a vector of ones. Its operand may be rounded like those of the other
 * products with that gradient; their errors don't add up.
 */

import { factsOf, term } from "../../ir/index.js";
import { isTf32, writtenOperand } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { isF32Sum, keepsColumnSums } from "../fusion/column-reductions.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import {
  type Buffer,
  type Call,
  forwardedOutput,
  type Node,
  type Program,
  type RowCall,
  type Work,
} from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";
import { variantOf, withoutForwardedLoads } from "./forwarded-loads.js";
import { readsSigns } from "./sign-reads.js";

export function storeOperandsAsTf32(runtime: Runtime, program: Program): void {
  for (const node of program.nodes) {
    const written = node.accesses.flatMap(({ slice, writes }) => (writes ? [slice.buffer] : []));
    for (const buffer of new Set(written)) {
      if (!isWrittenOnce(program, buffer)) continue;
      const { readers } = program.uses(buffer);
      if (!readers.some(({ call }) => roundsItself(call, buffer))) continue;
      const isGradient = readers.some(({ call }) => multipliesAsGradient(call, buffer));
      const isUnaffected = (reader: Node): boolean =>
        multiplies(reader.call, buffer) ||
        readsSigns(reader, buffer) ||
        (isGradient && isBiasGradient(reader.call, buffer));
      if (!readers.every(isUnaffected)) continue;
      const work = withRoundedStores(node.call.work, buffer);
      if (!work || (work.kind === "row" && !keepsColumnSums(runtime, node.call.work, work))) continue;
      program.replace(node, { ...node.call, work });
      for (const reader of readers) markRounded(program, reader, buffer);
    }
  }
}

const operandNames = ["x", "weight", "y"] as const;

/** The names under which a convolution reads a buffer as a factor. */
function factorsIn({ shape, operands }: ConvolutionCall, buffer: Buffer) {
  return operandNames.filter(
    (name) => name !== writtenOperand[shape.direction] && operands[name].buffer === buffer,
  );
}

/** True if a call is a convolution in TF32 that reads a buffer as a factor, and uses it for nothing else. */
function multiplies({ work }: Call, buffer: Buffer): boolean {
  if (work.kind !== "convolution" || !work.shape.channelsLast || !isTf32(work.shape.channelsLast))
    return false;
  const uses = Object.values(work.operands).filter((slice) => slice.buffer === buffer);
  return uses.length > 0 && uses.length === factorsIn(work, buffer).length;
}

function multipliesAsGradient(call: Call, buffer: Buffer): boolean {
  return (
    call.work.kind === "convolution" && multiplies(call, buffer) && call.work.operands.y.buffer === buffer
  );
}

/** True for a plain sum over the rows of a buffer. */
function isBiasGradient({ work }: Call, buffer: Buffer): boolean {
  if (work.kind !== "column" || !isF32Sum(work)) return false;
  const [value, ...others] = work.kernel.values;
  return value?.kind === "load" && others.length === 0 && work.operands[value.input]?.buffer === buffer;
}

/** True if a convolution rounds a buffer only if it has to. A weight gradient transposes its operands in shared memory, and rounds them there. */
function roundsItself(call: Call, buffer: Buffer): boolean {
  const { work } = call;
  if (work.kind !== "convolution" || !multiplies(call, buffer)) return false;
  const { direction, channelsLast } = work.shape;
  const isKnown = factorsIn(work, buffer).every((name) => channelsLast?.rounded?.includes(name));
  return direction !== "weight-gradient" && !isKnown;
}

function markRounded(program: Program, reader: Node, buffer: Buffer): void {
  const { work } = reader.call;
  if (work.kind !== "convolution" || work.shape.direction === "weight-gradient") return;
  const { channelsLast } = work.shape;
  if (!channelsLast) return;
  const factors = factorsIn(work, buffer);
  const rounded = operandNames.filter(
    (name) => factors.includes(name) || channelsLast.rounded?.includes(name),
  );
  const shape = { ...work.shape, channelsLast: { ...channelsLast, rounded } };
  program.replace(reader, { ...reader.call, work: { ...work, shape } });
}

/** The same work with everything that it stores in a buffer rounded to TF32; undefined if it cannot do that. */
function withRoundedStores(work: Work, buffer: Buffer): ConvolutionCall | RowCall | undefined {
  if (work.kind === "row") return withRoundedOutputs(work, buffer);
  if (work.kind !== "convolution") return undefined;
  const { shape, operands } = work;
  const { direction, dtype, channelsLast, depthwise, epilogue } = shape;
  if (direction === "weight-gradient" || dtype !== "f32" || !(channelsLast || depthwise)) return undefined;
  if (operands[writtenOperand[direction]].buffer !== buffer) return undefined;
  const value = term.roundTf32(epilogue?.value ?? term.load(0, "f32"));
  return { ...work, shape: { ...shape, epilogue: { value, scalars: epilogue?.scalars ?? [] } } };
}

function withRoundedOutputs(work: RowCall, buffer: Buffer): RowCall | undefined {
  const { kernel, operands } = work;
  const { inputs, outputs } = kernel;
  const slices = operands.slice(inputs.length);
  const written = [...outputs.keys()].filter((output) => slices[output]?.buffer === buffer);
  const areElements = written.every(
    (output) => outputs[output]?.dtype === "f32" && outputs[output].per === "element",
  );
  const readAgain = [...inputs.keys()].filter((input) => operands[input]?.buffer === buffer);
  if (!areElements || (readAgain.length > 0 && !canForward(work, readAgain))) return undefined;
  const forwarded = withoutForwardedLoads(work, readAgain);
  return {
    ...forwarded,
    kernel: variantOf(forwarded.kernel, `rounded ${written}`, (full) => ({
      ...full,
      stages: full.stages.map((stage) =>
        stage.kind === "store" && written.includes(stage.output)
          ? { ...stage, value: term.roundTf32(stage.value) }
          : stage,
      ),
    })),
  };
}

/** True if later stages can use values instead of what these inputs read: a value must not depend on memory that the kernel overwrites. */
function canForward(work: RowCall, inputs: readonly number[]): boolean {
  const { kernel, operands } = work;
  const outputs = operands.slice(kernel.inputs.length);
  const { isReadAtIndex } = factsOf(kernel);
  return kernel.inputs.every((_, input) => {
    if (inputs.includes(input)) return forwardedOutput(work, input) !== undefined && !isReadAtIndex[input];
    return !outputs.some(({ buffer }) => buffer === operands[input]?.buffer);
  });
}
