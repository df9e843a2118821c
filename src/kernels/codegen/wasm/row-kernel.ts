/**
 * Prints a row kernel as a WebAssembly module. The loops are: blocks of rows, the rows of a block, the stages of a row,
 * and the elements of a stage, a vector at a time and then one by one. The lone elements at a row's end go through the
 * same vector code in lane 0, so a value never depends on where in its row it stands.
 */

import {
  type Code,
  encodeKernel,
  type KernelSource,
  type Local,
  type Parameter,
} from "../../../driver/index.js";
import { HoldfastError } from "../../../errors/index.js";
import type { Compute, Expression, InnerStride, ReduceOp, RowKernel, Stage } from "../../../ir/index.js";
import {
  checkRowKernel,
  type Dtype,
  dtypes,
  identityOf,
  invariantNodesOf,
  isUniform,
  loadsOf,
  usesF64,
} from "../../../ir/index.js";
import { type Lanes, pushElements, pushSplat, storeElements } from "./elements.js";
import {
  given,
  type Leaves,
  pushBinary,
  pushConstant,
  pushExpression,
  pushLaneNumbers,
  spread,
  spreadOf,
} from "./expressions.js";
import { calledBy } from "./functions.js";
import { pushIndexed } from "./indexed-load.js";
import { advance, forRange, limitTo, setToElement } from "./loops.js";

/** What of the operands' layouts is fixed when the kernel is printed; the sizes come with the launch. */
export interface Layout {
  /** Over how many axes rows are counted, the last one fastest. */
  readonly outerRank: number;
  /** One for each input, then one for each output. */
  readonly inner: readonly InnerStride[];
}

interface Operand {
  readonly dtype: Dtype;
  readonly inner: InnerStride;
  readonly bytes: number;
  readonly address: Local;
  readonly outerStrides: readonly Local[];
  readonly innerStride: Local | undefined;
  /** The row's start, and the present place in it. */
  readonly start: Local;
  readonly cursor: Local;
  /** What an input that does not move along the row holds in every lane. */
  readonly everywhere: Local;
}

/**
 * The kernel's parameters, in order: the inputs, the outputs, then as u32 rows, elements a row, rows a block, elements
 * in all, the outer axes' sizes, each operand's outer strides (in elements) and, where it is "any", its inner one; then
 * the kernel's own scalars.
 */
export function printRowKernel(kernel: RowKernel, layout: Layout): KernelSource {
  checkRowKernel(kernel);
  requireFitting(kernel, layout);
  const operands = kernel.inputs.length + kernel.outputs.length;
  const sizes = 4 + layout.outerRank * (1 + operands) + layout.inner.filter((one) => one === "any").length;
  const parameters: Parameter[] = [
    ...kernel.inputs.map(() => "in" as const),
    ...kernel.outputs.map(() => "inout" as const),
    ...Array.from({ length: sizes }, () => "u32" as const),
    ...kernel.scalars,
  ];
  return encodeKernel({
    name: kernel.name,
    parameters,
    ...calledBy(kernel.stages.map(({ value }) => value)),
    body: (code) => new Printer(code, kernel, layout).print(),
  });
}

class Printer {
  readonly #code: Code;
  readonly #kernel: RowKernel;
  readonly #layout: Layout;
  readonly #lanes: Lanes;
  readonly #inputs: readonly Operand[];
  readonly #outputs: readonly Operand[];
  readonly #rows: Local;
  readonly #inner: Local;
  readonly #rowsPerBlock: Local;
  readonly #elements: Local;
  readonly #outerSizes: readonly Local[];
  readonly #scalars: readonly Local[];
  /** The inputs that some stage loads with no index. */
  readonly #plainlyRead: ReadonlySet<number>;
  readonly #reduced = new Map<number, Local>();
  /** The row's number in every lane, and the elements' numbers in the row. */
  readonly #rowNumber: Local;
  readonly #positions: Local;
  #nextParameter = 2;

  constructor(code: Code, kernel: RowKernel, layout: Layout) {
    this.#code = code;
    this.#kernel = kernel;
    this.#layout = layout;
    this.#lanes = lanesOf(kernel, layout.inner);
    const dtypesOfAll = [...kernel.inputs, ...kernel.outputs.map(({ dtype }) => dtype)];
    const addresses = dtypesOfAll.map(() => this.#parameter());
    [this.#rows, this.#inner, this.#rowsPerBlock, this.#elements] = [
      this.#parameter(),
      this.#parameter(),
      this.#parameter(),
      this.#parameter(),
    ];
    this.#outerSizes = this.#parameters(layout.outerRank);
    const operands = dtypesOfAll.map((dtype, index) => this.#operand(dtype, index, addresses));
    this.#inputs = operands.slice(0, kernel.inputs.length);
    this.#outputs = operands.slice(kernel.inputs.length);
    this.#scalars = kernel.scalars.map((type) => spreadOf(code, this.#parameter(), type));
    const loads = kernel.stages.flatMap(({ value }) => loadsOf(value));
    this.#plainlyRead = new Set(loads.filter(({ at }) => !at).map(({ input }) => input));
    this.#rowNumber = code.local("v128");
    this.#positions = code.local("v128");
  }

  print(): void {
    const code = this.#code;
    const [row, endRow] = [code.local("i32"), code.local("i32")];
    const [firstBlock, endBlock] = [code.parameter(0), code.parameter(1)];
    code.get(firstBlock).get(this.#rowsPerBlock).op("i32.mul").set(row);
    code.get(endBlock).get(this.#rowsPerBlock).op("i32.mul").set(endRow);
    limitTo(code, endRow, this.#rows);
    forRange(code, row, endRow, 1, () => this.#printRow(row));
  }

  #printRow(row: Local): void {
    const code = this.#code;
    this.#placeOperands(row);
    code.get(row).op("i32x4.splat").set(this.#rowNumber);
    // The last row of a cut-up vector may be shorter than the others.
    const count = code.local("i32");
    code.get(this.#elements).get(row).get(this.#inner).op("i32.mul").op("i32.sub").set(count);
    limitTo(code, count, this.#inner);
    for (const [index, input] of this.#inputs.entries()) {
      // An operand that is only read at an index may stand outside its memory where there is none, as a flipped one does.
      if (input.inner !== "none" || !this.#plainlyRead.has(index)) continue;
      code.get(input.start);
      pushSplat(code, input.dtype);
      code.set(input.everywhere);
    }
    for (const [index, stage] of this.#kernel.stages.entries()) this.#printStage(stage, index, count);
  }

  /** Sets every operand's start to its place in this row. */
  #placeOperands(row: Local): void {
    const code = this.#code;
    const operands = [...this.#inputs, ...this.#outputs];
    for (const { address, start } of operands) code.get(address).set(start);
    const [rest, coordinate] = [code.local("i32"), code.local("i32")];
    code.get(row).set(rest);
    for (let axis = this.#layout.outerRank - 1; axis >= 0; axis--) {
      const size = this.#outerSizes[axis];
      if (!size) continue;
      code.get(rest);
      if (axis > 0) code.get(size).op("i32.rem_u");
      code.set(coordinate);
      if (axis > 0) code.get(rest).get(size).op("i32.div_u").set(rest);
      for (const { start, outerStrides, bytes } of operands) {
        const stride = outerStrides[axis];
        if (!stride) continue;
        code
          .get(start)
          .get(coordinate)
          .get(stride)
          .op("i32.mul")
          .i32(bytes)
          .op("i32.mul")
          .op("i32.add")
          .set(start);
      }
    }
  }

  #printStage(stage: Stage, index: number, count: Local): void {
    if (stage.kind === "reduce") {
      this.#printReduction(stage.op, stage.value, index, count);
      return;
    }
    const output = this.#outputs[stage.output];
    if (!output) return;
    const code = this.#code;
    const value = code.local("v128");
    if (this.#kernel.outputs[stage.output]?.per === "row") {
      this.#moveToStart(this.#readBy(stage.value));
      pushExpression(code, stage.value, this.#leaves(1));
      code.set(value);
      storeElements(code, output.dtype, 1, output.start, value);
      return;
    }
    const fixed = this.#computeInvariant(stage.value);
    this.#printElements(count, [...this.#readBy(stage.value), output], (lanes) => {
      pushExpression(code, stage.value, this.#leaves(lanes), fixed);
      code.set(value);
      storeElements(code, output.dtype, lanes, output.cursor, value);
    });
  }

  /** Lanes are added up apart and joined in a fixed order at the end: the bits follow from the row's length alone. */
  #printReduction(op: ReduceOp, value: Expression, stage: number, count: Local): void {
    const code = this.#code;
    const { type } = value;
    // A float's min and max are long chains of instructions, so several go side by side; their order changes nothing.
    const isOrder = op === "min" || op === "max";
    const sums = Array.from({ length: isOrder ? 4 : 1 }, () => code.local("v128"));
    for (const sum of sums) {
      pushConstant(code, type, identityOf(op, type));
      code.set(sum);
    }
    const firstLane = code.local("v128");
    code.i32(-1).op("i32x4.splat").set(firstLane);
    for (let lane = type === "f64" ? 2 : 1; lane < 4; lane++) {
      code.get(firstLane).i32(0).lane("i32x4.replace_lane", lane).set(firstLane);
    }
    const fixed = this.#computeInvariant(value);
    const addVector = (lanes: Lanes, vector: number): void => {
      const sum = given(sums[vector], `vector ${vector}`, this.#kernel.name);
      code.get(sum);
      pushExpression(code, value, this.#leaves(lanes, vector), fixed);
      pushBinary(code, op, type);
      if (lanes === 1) code.get(sum).get(firstLane).op("v128.bitselect");
      code.set(sum);
    };
    this.#printElements(count, this.#readBy(value), addVector, sums.length);
    const total = code.local("v128");
    this.#reduced.set(stage, total);
    for (const [index, sum] of sums.entries()) {
      code.get(sum);
      if (index > 0) pushBinary(code, op, type);
    }
    code.set(total);
    this.#flattenSpans(op, type, total);
    code.set(total);
  }

  /** Computes the parts of a value that don't change along the row, once, before its elements. */
  #computeInvariant(value: Expression): ReadonlyMap<Expression, Local> {
    const code = this.#code;
    const fixed = new Map<Expression, Local>();
    for (const part of invariantNodesOf(value, (input) => this.#inputs[input]?.inner === "none")) {
      const local = code.local("v128");
      pushExpression(code, part, this.#leaves(this.#lanes));
      code.set(local);
      fixed.set(part, local);
    }
    return fixed;
  }

  /** Pushes (0 ∘ 1) ∘ (2 ∘ 3) of the lanes that hold elements, in every lane. */
  #flattenSpans(op: ReduceOp, type: Compute, vector: Local): void {
    const code = this.#code;
    const pushLane = (lane: number): void => {
      const extract = (
        { f32: "f32x4.extract_lane", f64: "f64x2.extract_lane", i32: "i32x4.extract_lane" } as const
      )[type];
      code.get(vector).lane(extract, lane);
      spread(code, type);
    };
    const join = (): void => pushBinary(code, op, type);
    pushLane(0);
    pushLane(1);
    join();
    // Where vectors hold two elements the other lanes hold none, also of narrower types.
    if (type === "f64" || this.#lanes === 2) return;
    pushLane(2);
    pushLane(3);
    join();
    join();
  }

  /**
   * Runs the body over a row's elements: `together` neighbouring vectors at a time, then single ones, then what is left,
   * one by one.
   */
  #printElements(
    count: Local,
    operands: readonly Operand[],
    body: (lanes: Lanes, vector: number) => void,
    together = 1,
  ): void {
    const code = this.#code;
    const moving = operands.filter(({ inner }) => inner !== "none");
    const left = code.local("i32");
    code.get(count).set(left);
    this.#moveToStart(operands);
    const loop = (lanes: Lanes, vectors: number): void => {
      const elements = lanes * vectors;
      code.block((leave) => {
        code.loop((again) => {
          code.get(left).i32(elements).op("i32.lt_u").branchIf(leave);
          for (let vector = 0; vector < vectors; vector++) body(lanes, vector);
          for (const operand of moving) this.#advance(operand, elements);
          code.get(this.#positions).i32(elements).op("i32x4.splat").op("i32x4.add").set(this.#positions);
          code.get(left).i32(elements).op("i32.sub").set(left).branch(again);
        });
      });
    };
    if (this.#lanes > 1 && together > 1) loop(this.#lanes, together);
    if (this.#lanes > 1) loop(this.#lanes, 1);
    loop(1, 1);
  }

  #readBy(value: Expression): Operand[] {
    return [...new Set(loadsOf(value).map(({ input }) => input))]
      .map((input) => this.#inputs[input])
      .filter((operand) => operand !== undefined);
  }

  #moveToStart(operands: readonly Operand[]): void {
    const code = this.#code;
    for (const { start, cursor } of operands) code.get(start).set(cursor);
    pushLaneNumbers(code, this.#lanes);
    code.set(this.#positions);
  }

  #advance({ cursor, innerStride, bytes }: Operand, elements: number): void {
    if (innerStride) setToElement(this.#code, cursor, cursor, innerStride, bytes);
    else advance(this.#code, cursor, elements * bytes);
  }

  /** What the elements of the present place are, or of one that lies so many vectors behind it. */
  #leaves(lanes: Lanes, vector = 0): Leaves {
    const code = this.#code;
    const first = vector * lanes;
    return {
      pushLoad: (index, at) => {
        const input = given(this.#inputs[index], `input ${index}`, this.#kernel.name);
        const { dtype, cursor, inner } = input;
        if (at) {
          const isInvariant = (other: number): boolean => this.#inputs[other]?.inner === "none";
          const uniform = isUniform(at, isInvariant);
          const isMoving = inner !== "none";
          pushIndexed(code, {
            dtype,
            cursor,
            first: isMoving ? first : 0,
            isMoving,
            lanes,
            isUniform: uniform,
          });
        } else if (inner === "none") code.get(input.everywhere);
        else pushElements(code.get(cursor), dtype, lanes, first * input.bytes);
      },
      pushScalar: (index) => code.get(given(this.#scalars[index], `scalar ${index}`, this.#kernel.name)),
      pushReduced: (stage) =>
        code.get(given(this.#reduced.get(stage), `an earlier reduction ${stage}`, this.#kernel.name)),
      pushPosition: () => {
        code.get(this.#positions);
        if (first > 0) code.i32(first).op("i32x4.splat").op("i32x4.add");
      },
      pushRow: () => code.get(this.#rowNumber),
    };
  }

  #operand(dtype: Dtype, index: number, addresses: readonly Local[]): Operand {
    const inner = this.#layout.inner[index] ?? "unit";
    return {
      dtype,
      inner,
      bytes: dtypes[dtype].bytes,
      address: addresses[index] ?? this.#code.local("i32"),
      outerStrides: this.#parameters(this.#layout.outerRank),
      innerStride: inner === "any" ? this.#parameter() : undefined,
      start: this.#code.local("i32"),
      cursor: this.#code.local("i32"),
      everywhere: this.#code.local("v128"),
    };
  }

  #parameter(): Local {
    return this.#code.parameter(this.#nextParameter++);
  }

  #parameters(count: number): Local[] {
    return Array.from({ length: count }, () => this.#parameter());
  }
}

/** With f64 anywhere a vector has two lanes; where an operand jumps, elements go one by one. */
export function lanesOf({ inputs, outputs, stages }: RowKernel, inner: readonly InnerStride[]): Lanes {
  if (inner.includes("any")) return 1;
  const isWide = [...inputs, ...outputs.map(({ dtype }) => dtype)].includes("f64");
  return isWide || stages.some(({ value }) => usesF64(value)) ? 2 : 4;
}

function requireFitting({ name, inputs, outputs }: RowKernel, { inner }: Layout): void {
  const operands = inputs.length + outputs.length;
  if (inner.length === operands) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${name}" has ${operands} operands and a layout for ${inner.length}; it can't be printed.`,
  );
}
