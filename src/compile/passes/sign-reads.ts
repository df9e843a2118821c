/**
 * In bf16 precision a ReLU stores its result twice: as bf16 for the next GEMM, and as f32 for its gradient, which only asks whether it is
 * positive. bf16 has the exponents of f32, so its copy answers the same from 2⁻¹³⁴ on. The gradient reads the copy, and the f32 result is not
 * stored.
 */

import type { Expression, Iteration, Stage } from "../../ir/index.js";
import { operandsOf, subexpressionsOf } from "../../ir/index.js";
import { forwardedOutput } from "../program/kinds/row.js";
import type { Buffer, BufferSlice, Node, Program, RowCall } from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";
import { withoutForwardedLoads, withoutOutput } from "./forwarded-loads.js";
import { narrowKernel } from "./narrow-kernel.js";

/** Results that are stored as f32 and as bf16 are stored as bf16 only, if their readers of f32 ask for signs only. */
export function readSignsOfCasts(program: Program): void {
  for (const node of program.nodes) {
    const { work } = node.call;
    if (work.kind !== "row") continue;
    const copied = findCopied(program, work);
    if (!copied) continue;
    const { readers } = program.uses(copied.wide);
    if (readers.length === 0 || !readers.every((reader) => readsSigns(reader, copied.wide))) continue;
    for (const reader of readers) readCopy(program, reader, copied);
    program.replace(node, { ...node.call, work: withoutCopied(work, copied) });
  }
}

/** An f32 output of a kernel whose values another output has as bf16. */
interface Copied {
  readonly output: number;
  readonly wide: Buffer;
  readonly narrow: Buffer;
  /** The kernel's inputs that read the f32 output again (store-to-load forwarding). */
  readonly aliases: readonly number[];
}

function findCopied(program: Program, work: RowCall): Copied | undefined {
  const { kernel, iteration, operands } = work;
  const { inputs, outputs, stages } = kernel;
  const stores = stages.filter((stage) => stage.kind === "store");
  // Reductions are numbered by their stage, which a dropped store would move.
  if (stores.length < stages.length) return undefined;
  const wholeOutput = (output: number): Buffer | undefined => {
    const slice = operands[inputs.length + output];
    return slice && isWhole(slice) && isWrittenOnce(program, slice.buffer) ? slice.buffer : undefined;
  };
  for (const { output, value: stored } of stores) {
    const wide = outputs[output]?.dtype === "f32" ? wholeOutput(output) : undefined;
    if (!wide) continue;
    const aliases = [...inputs.keys()].filter((input) => operands[input]?.buffer === wide);
    if (aliases.some((input) => forwardedOutput(work, input) !== output)) continue;
    for (const { output: other, value } of stores) {
      const narrow = outputs[other]?.dtype === "bf16" ? wholeOutput(other) : undefined;
      const isReadAgain = value.kind === "load" && !value.at && aliases.includes(value.input);
      if (
        (isReadAgain || value === stored) &&
        narrow?.bytes === wide.bytes / 2 &&
        hasSameStrides(iteration, inputs.length + output, inputs.length + other)
      )
        return { output, wide, narrow, aliases };
    }
  }
  return undefined;
}

const isWhole = ({ buffer, offset, size }: BufferSlice): boolean => offset === 0 && size === buffer.bytes;

function hasSameStrides({ outer, row }: Iteration, a: number, b: number): boolean {
  return [...outer, row].every(({ strides }) => strides[a] === strides[b]);
}

/** True if a call uses a buffer's values in tests for sign and NaN only. */
export function readsSigns({ call: { work }, accesses }: Node, buffer: Buffer): boolean {
  if (work.kind !== "row") return false;
  const { kernel, operands } = work;
  const read = new Set([...kernel.inputs.keys()].filter((input) => operands[input]?.buffer === buffer));
  const isRead = (node: Expression): boolean => node.kind === "load" && read.has(node.input);
  const testsOnly = ({ value }: Stage): boolean =>
    !isRead(value) &&
    subexpressionsOf(value).every((node) => isSignTest(node) || !operandsOf(node).some(isRead));
  return (
    read.size > 0 &&
    [...read].every((input) => kernel.inputs[input] === "f32" && isWhole(operands[input] as BufferSlice)) &&
    accesses.every(({ slice, writes }) => !writes || slice.buffer !== buffer) &&
    kernel.stages.every(testsOnly)
  );
}

/** x > 0 and its like, and x ≠ x. Loads at an offset stay as they are: the copy has the same layout. */
function isSignTest(node: Expression): boolean {
  if (node.kind !== "compare") return false;
  const { a, b } = node;
  const isZero = (side: Expression): boolean => side.kind === "constant" && side.value === 0;
  const isSame = a.kind === "load" && b.kind === "load" && a.input === b.input && a.at === b.at;
  return isZero(a) || isZero(b) || isSame;
}

function readCopy(program: Program, reader: Node, { wide, narrow }: Copied): void {
  const { work } = reader.call;
  if (work.kind !== "row") return;
  const kernel = narrowKernel(work.kernel, work.operands, ({ buffer }) => buffer === wide);
  const copy = { buffer: narrow, offset: 0, size: narrow.bytes };
  const operands = work.operands.map((slice) => (slice.buffer === wide ? copy : slice));
  program.replace(reader, { ...reader.call, work: { ...work, kernel, operands } });
}

/** The call without an output and the inputs that read it again. */
function withoutCopied(work: RowCall, { output, aliases }: Copied): RowCall {
  return withoutOutput(withoutForwardedLoads(work, aliases), output);
}
