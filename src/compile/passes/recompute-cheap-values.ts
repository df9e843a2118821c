/**
 * On a GPU, a large value of a few cheap operations is not stored if its readers load no more bytes to compute it than the value has. A
 * norm and its activation are an example: the gradient's kernels compute the activation's input again from the stored bf16 result of
 * a convolution, and the gradient of the activation from a bf16 gradient.
 *
 * Readers are row kernels and column reductions. Every value keeps its bits.
 */

import { type ColumnKernel, type Expression, loadsOf, subexpressionsOf } from "../../ir/index.js";
import { type ColumnStride, capabilitiesOf, type InputStrides } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { comboLimits } from "../cost-model.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { type FusionNode, fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import { Interner } from "../fusion/vertical/interner.js";
import { joinNames } from "../fusion/vertical/kernel-memo.js";
import { singleOutput } from "../fusion/vertical/single-output.js";
import type { Step } from "../fusion/vertical/strided-access.js";
import type { Buffer, BufferSlice, Call, ColumnCall, Node, Program } from "../program/program.js";
import { isWrittenBetween, valuesOf } from "./recompute-in-readers.js";

/** Operations that a kernel does while it waits for memory. */
const maxOperations = 24;
/** Functions that take a few instructions in TF32 and bf16, and how many of them a kernel has time for. */
const fastFunctions = new Set(["exp", "tanh", "sigmoid"]);
const maxFunctions = 2;
const cheapUnary = new Set(["neg", "abs", "roundTf32", "roundBf16", "roundF16"]);
const cheapBinary = new Set(["add", "sub", "mul", "min", "max"]);

export function recomputeCheapValues(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).prefersMemoryOverRecompute) return;
  // A smaller value takes less time to store than a launch.
  const minBytes = comboLimits(runtime.device).launchTraffic;
  // The first value comes first: what is computed from it can then be computed from its inputs.
  for (const node of [...program.nodes]) {
    for (const value of valuesOf(program, node, minBytes)) recompute(runtime, program, node, value);
  }
}

function recompute(runtime: Runtime, program: Program, producer: Node, value: Buffer): void {
  const { readers } = program.uses(value);
  const member = fusionNodeOf(producer.call);
  if (!member || readers.length === 0 || readers.includes(producer)) return;
  const edits: (readonly [Node, Call])[] = [];
  for (const reader of readers) {
    const call = readerWith(runtime, program, { producer, reader, value });
    if (!call) return;
    edits.push([reader, call]);
  }
  const isNeeded = ({ buffer }: BufferSlice): boolean => buffer !== value;
  const isRemoved = !member.outputs.some(({ slice }) => isNeeded(slice));
  const rest = isRemoved ? undefined : combine([member], isNeeded, capabilitiesOf(runtime));
  if (!isRemoved && !rest) return;
  for (const [reader, call] of edits) program.replace(reader, call);
  if (rest) program.replace(producer, { ...producer.call, work: rowsOf(rest) });
  else program.remove(producer);
}

interface Reading {
  readonly producer: Node;
  readonly reader: Node;
  readonly value: Buffer;
}

/** The reader, computing the value itself; undefined if that would load more, or other values than the producer did. */
function readerWith(
  runtime: Runtime,
  program: Program,
  { producer, reader, value }: Reading,
): Call | undefined {
  const { work } = producer.call;
  if (work.kind !== "row" || reader.calls.length > 1 || producer.calls.length > 1) return undefined;
  const loaded = new Set(reader.accesses.filter(({ reads }) => reads).map(({ slice }) => slice.buffer));
  const again = singleOutput(work, value, (buffer) => buffer !== value && loaded.has(buffer));
  const first = again && fusionNodeOf({ ...producer.call, work: again });
  if (!first || !isCheap(first, runtime.settings.precision !== "f32")) return undefined;
  const { inputs } = first;
  const added = new Map(
    inputs.filter(({ slice }) => !loaded.has(slice.buffer)).map(({ key, slice }) => [key, slice.size]),
  );
  const addedBytes = [...added.values()].reduce((sum, bytes) => sum + bytes, 0);
  if (addedBytes > (1 + smallShare) * value.bytes) return undefined;
  if (inputs.some(({ slice }) => isWrittenBetween(program, slice.buffer, producer, reader))) return undefined;
  const op = joinNames([producer.call.op, reader.call.op]);
  if (reader.call.work.kind === "column") {
    const column = columnWith(reader.call.work, first, value);
    return column && { ...reader.call, op, work: column };
  }
  const before = fusionNodeOf(reader.call);
  const draft = before && combine([first, before], ({ buffer }) => buffer !== value, capabilitiesOf(runtime));
  if (!draft || draft.iteration.elements !== before?.elements) return undefined;
  return { ...reader.call, op, work: rowsOf(draft) };
}

/** Values for each row or column are small beside one for each element. */
const smallShare = 1 / 64;

/** True if the one value is f32, takes few operations, and no random numbers or elements at an index. In f32 it takes no functions. */
function isCheap({ kernel, inputs, reduces }: FusionNode, usesFastMath: boolean): boolean {
  const isFast = (node: Expression): boolean => node.kind === "unary" && fastFunctions.has(node.op);
  const nodes = kernel.stages.flatMap(({ value }) => subexpressionsOf(value));
  return (
    !reduces &&
    kernel.stages.length === 1 &&
    kernel.outputs.every(({ dtype, per }) => dtype === "f32" && per === "element") &&
    inputs.every(({ dtype, isIndexed }) => dtype !== "draw" && !isIndexed) &&
    nodes.length <= maxOperations &&
    nodes.every((node) => (usesFastMath && isFast(node)) || isCheapNode(node)) &&
    nodes.filter(isFast).length <= maxFunctions
  );
}

function isCheapNode(node: Expression): boolean {
  if (node.kind === "unary") return cheapUnary.has(node.op);
  if (node.kind === "binary") return cheapBinary.has(node.op);
  return node.kind !== "position" && node.kind !== "row";
}

/** A column reduction that computes one of its inputs from the inputs of `first`. */
function columnWith(work: ColumnCall, first: FusionNode, value: Buffer): ColumnCall | undefined {
  const { kernel, rows, columns, strides, runs, operands } = work;
  if (rows * columns !== first.elements) return undefined;
  const inputCount = kernel.inputs.length;
  const replaced = new Set(
    operands.slice(0, inputCount).flatMap(({ buffer }, input) => (buffer === value ? [input] : [])),
  );
  // The value must be the whole matrix, or the matrices of all runs, element for element.
  const length = runs?.length ?? columns;
  for (const input of replaced) {
    const [stride, slice] = [strides[input], operands[input]];
    const isWhole =
      stride?.row === length &&
      stride.column === "unit" &&
      (stride.run ?? 0) === (runs ? rows * length : 0) &&
      slice?.size === value.bytes;
    if (!isWhole || kernel.inputs[input] !== "f32") return undefined;
  }
  if (kernel.values.some((one) => loadsOf(one).some(({ input, at }) => at && replaced.has(input))))
    return undefined;

  const inputs: Input[] = [];
  const numberOf = (input: Input): number => {
    const known = inputs.findIndex((other) => isSameInput(other, input));
    return known >= 0 ? known : inputs.push(input) - 1;
  };
  const kept = kernel.inputs.map((dtype, input): number => {
    const [stride, slice] = [strides[input], operands[input]];
    return replaced.has(input) || !stride || !slice ? -1 : numberOf({ dtype, stride, slice });
  });
  const added: number[] = [];
  for (const { dtype, slice, steps } of first.inputs) {
    const stride = columnStrideOf(steps, work);
    if (!stride || dtype === "draw") return undefined;
    added.push(numberOf({ dtype, stride, slice }));
  }
  const interner = new Interner();
  const leaves = (numbers: readonly number[], firstScalar: number, of?: Expression) => ({
    load: (input: number, type: Expression["type"], at: Expression | undefined): Expression => {
      if (of && replaced.has(input)) return of;
      const load = { kind: "load", input: numbers[input] ?? 0, type } as const;
      return at ? { ...load, at } : load;
    },
    scalar: (index: number, type: Expression["type"]): Expression => ({
      ...{ kind: "scalar", index: firstScalar + index, type },
    }),
    reduced: (stage: number, type: Expression["type"]): Expression => ({ kind: "reduced", stage, type }),
  });
  const [stage] = first.kernel.stages;
  if (!stage) return undefined;
  const computed = interner.rewrite(stage.value, leaves(added, kernel.scalars.length));
  const changed: ColumnKernel = {
    ...kernel,
    inputs: inputs.map(({ dtype }) => dtype),
    scalars: [...kernel.scalars, ...first.kernel.scalars],
    values: kernel.values.map((one) => interner.rewrite(one, leaves(kept, 0, computed))),
  };
  return {
    ...work,
    kernel: changed,
    strides: inputs.map(({ stride }) => stride),
    operands: [...inputs.map(({ slice }) => slice), ...operands.slice(inputCount)],
    scalars: [...work.scalars, ...first.scalars],
  };
}

interface Input {
  readonly dtype: ColumnKernel["inputs"][number];
  readonly stride: InputStrides;
  readonly slice: BufferSlice;
}

function isSameInput(a: Input, b: Input): boolean {
  return (
    a.dtype === b.dtype &&
    a.slice.buffer === b.slice.buffer &&
    a.slice.offset === b.slice.offset &&
    a.slice.size === b.slice.size &&
    a.stride.row === b.stride.row &&
    a.stride.column === b.stride.column &&
    (a.stride.run ?? 0) === (b.stride.run ?? 0)
  );
}

/**
 * The strides of an access to all elements of a matrix, or of the matrices of all runs, row after row; undefined if no such strides give it.
 */
function columnStrideOf(steps: readonly Step[], work: ColumnCall): InputStrides | undefined {
  const { rows, columns, runs } = work;
  const length = runs?.length ?? columns;
  const inRow = splitSteps(steps, length);
  const inColumn = inRow && splitSteps(inRow.rest, rows);
  const column = inRow && columnOf(inRow.first, length, runs?.group);
  const row = inColumn && strideOf(inColumn.first);
  const run = inColumn && strideOf(inColumn.rest);
  if (!column || row === undefined || run === undefined) return undefined;
  return { row, column, ...(runs && { run }) };
}

function columnOf(
  [inner, outer, ...others]: readonly Step[],
  length: number,
  group: number | undefined,
): ColumnStride | undefined {
  if (!inner) return length === 1 ? "none" : undefined;
  if (!outer) return inner.stride === 1 ? "unit" : inner.stride === 0 ? "none" : undefined;
  const isGroup = inner.stride === 0 && inner.size === group && outer.stride === 1 && others.length === 0;
  return isGroup ? "group" : undefined;
}

function strideOf([step, ...others]: readonly Step[]): number | undefined {
  return others.length > 0 ? undefined : (step?.stride ?? 0);
}

/** The steps over the first `count` points, and those over the others; undefined if a step is not a multiple of the points that are left. */
function splitSteps(
  steps: readonly Step[],
  count: number,
): { readonly first: readonly Step[]; readonly rest: readonly Step[] } | undefined {
  const first: Step[] = [];
  let left = count;
  for (const [index, { size, stride }] of steps.entries()) {
    if (left === 1) return { first, rest: steps.slice(index) };
    if (size > left) {
      if (size % left !== 0) return undefined;
      const others = { size: size / left, stride: stride * left };
      return { first: [...first, { size: left, stride }], rest: [others, ...steps.slice(index + 1)] };
    }
    if (left % size !== 0) return undefined;
    first.push({ size, stride });
    left /= size;
  }
  return left === 1 ? { first, rest: [] } : undefined;
}
