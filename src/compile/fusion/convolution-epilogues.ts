/**
 * Runs a function of each element of a convolution's result, such as an activation, in the convolution: the result is stored once, and the
 * function's operand never. Only images whose channels are last, and those of depthwise convolutions.
 */

import { dtypes, factsOf } from "../../ir/index.js";
import { writtenOperand } from "../../kernels/index.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import {
  type Call,
  isSameSlice,
  latestPhase,
  type Node,
  type Program,
  type RowCall,
} from "../program/program.js";
import { isReadByOthers, isWrittenOnce } from "../program/uses.js";

export function fuseConvolutionEpilogues(program: Program): void {
  for (const node of program.nodes) {
    if (node.call.work.kind !== "row") continue;
    const { writers } = program.neighboursOf(node);
    const [writer] = writers;
    const fused = writer && writers.length === 1 ? fusedCall(program, writer, node) : undefined;
    const anchor = fused && writer && program.fusionAnchor(writer, node);
    if (!fused || !anchor) continue;
    program.fuse(writer, node, anchor);
    program.replace(writer, fused);
  }
}

function fusedCall(program: Program, convolution: Node, rows: Node): Call | undefined {
  const [first, second] = [convolution.call, rows.call];
  if (first.work.kind !== "convolution" || second.work.kind !== "row" || second.isRematerialized)
    return undefined;
  const { shape, operands } = first.work;
  const written = writtenOperand[shape.direction];
  const result = operands[written];
  const value = functionIn(second.work);
  const [input, output] = second.work.operands;
  if (!value || !input || !output || shape.epilogue) return undefined;
  if (!shape.channelsLast && !shape.depthwise) return undefined;
  if (shape.direction === "weight-gradient" || shape.dtype !== "f32") return undefined;
  const isWhole =
    isSameSlice(input, result) && second.work.iteration.row.size * dtypes.f32.bytes === result.size;
  const isOnly = isWrittenOnce(program, result.buffer) && !isReadByOthers(program, result.buffer, [rows]);
  // CTAs store while others still read.
  const isFresh = Object.entries(operands).every(
    ([name, { buffer }]) => name === written || buffer !== output.buffer,
  );
  if (!isWhole || !isOnly || !isFresh || output.size !== result.size || output.offset % 16 !== 0)
    return undefined;
  const work: ConvolutionCall = {
    ...first.work,
    shape: { ...shape, epilogue: { value, scalars: second.work.scalars } },
    operands: { ...operands, [written]: output },
  };
  return { op: `${first.op} + ${second.op}`, phase: latestPhase([first, second]), work };
}

/** The function of one f32 element that a row kernel stores, over contiguous memory; undefined if it does anything else. */
function functionIn({ kernel, iteration }: RowCall) {
  const { inputs, outputs, stages, scalars } = kernel;
  const [stage] = stages;
  const isFunction =
    [inputs, outputs, stages].every(({ length }) => length === 1) &&
    inputs[0] === "f32" &&
    outputs[0]?.dtype === "f32" &&
    scalars.every((type) => type === "f32");
  if (!isFunction || stage?.kind !== "store") return undefined;
  const { isElementwise, usesPosition, isReadAtIndex } = factsOf(kernel);
  const isFlat = iteration.outer.length === 0 && iteration.row.strides.every((stride) => stride === 1);
  return isElementwise && !usesPosition && !isReadAtIndex[0] && isFlat ? stage.value : undefined;
}
