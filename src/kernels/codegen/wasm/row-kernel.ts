/**
 * Prints row kernels as WebAssembly modules. The loops are: blocks of rows, rows of a block, stages of a row, and elements of a stage, a
 * vector at a time and then the tail. The tail runs the same vector code in lane 0, so a value never depends on its position in the row.
 */

import {
  type Code,
  encodeKernel,
  type KernelSource,
  type Local,
  type Parameter,
} from "../../../driver/index.js";
import { HoldfastError } from "../../../errors/index.js";
import {
  type Compute,
  checkRowKernel,
  type Dtype,
  dtypes,
  type Expression,
  type InnerStride,
  identityOf,
  invariantNodesOf,
  isUniform,
  loadsOf,
  passedType,
  type ReduceOp,
  type RowKernel,
  type Stage,
  uses64Bits,
} from "../../../ir/index.js";
import { type Lanes, pushElements, pushSplat, storeElements } from "./elements.js";
import {
  type Leaves,
  pushBinary,
  pushConstant,
  pushExpression,
  pushLaneNumbers,
  required,
  splat,
  splatOf,
} from "./expressions.js";
import { calledBy } from "./functions.js";
import { pushIndexed } from "./indexed-load.js";
import { advance, forRange, limitTo, setToElement } from "./loops.js";

/** The properties that the generated code is specialised on; the sizes are launch parameters. */
export interface Layout {
  /** The number of outer axes, the last one fastest. */
  readonly outerRank: number;
  /** One for each input, then one for each output. */
  readonly inner: readonly InnerStride[];
  /** An i32 that is 0 for rows that stay unchanged: their stores are skipped. */
  readonly changes?: Expression | undefined;
}

interface Operand {
  readonly dtype: Dtype;
  readonly inner: InnerStride;
  readonly bytes: number;
  readonly address: Local;
  readonly outerStrides: readonly Local[];
  readonly innerStride: Local | undefined;
  /** The row's address, and the current element's. */
  readonly start: Local;
  readonly cursor: Local;
  /** The splatted value of an input that is constant along the row. */
  readonly splat: Local;
}

/**
 * The kernel's parameters, in order: the inputs and the outputs; as u32 the number of rows, elements per row, rows per block and all
 * elements; the sizes of the outer axes; each operand's outer strides in elements and, for "any", its inner stride; then the scalars.
 */
export function printRowKernel(kernel: RowKernel, layout: Layout): KernelSource {
  checkRowKernel(kernel);
  requireFitting(kernel, layout);
  const operands = kernel.inputs.length + kernel.outputs.length;
  const sizes =
    4 + layout.outerRank * (1 + operands) + layout.inner.filter((stride) => stride === "any").length;
  const parameters: Parameter[] = [
    ...kernel.inputs.map(() => "in" as const),
    ...kernel.outputs.map(() => "inout" as const),
    ...Array.from({ length: sizes }, () => "u32" as const),
    ...kernel.scalars.map(passedType),
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
  /** The inputs that some stage loads without an index. */
  readonly #readDirectly: ReadonlySet<number>;
  readonly #reduced = new Map<number, Local>();
  /** The row's index in every lane, and the elements' positions in the row. */
  readonly #rowIndex: Local;
  readonly #positions: Local;
  #nextParameter = 2;

  constructor(code: Code, kernel: RowKernel, layout: Layout) {
    this.#code = code;
    this.#kernel = kernel;
    this.#layout = layout;
    this.#lanes = lanesOf(kernel, layout.inner);
    const operandDtypes = [...inputsInMemory(kernel), ...kernel.outputs.map(({ dtype }) => dtype)];
    const addresses = operandDtypes.map(() => this.#parameter());
    [this.#rows, this.#inner, this.#rowsPerBlock, this.#elements] = [
      this.#parameter(),
      this.#parameter(),
      this.#parameter(),
      this.#parameter(),
    ];
    this.#outerSizes = this.#parameters(layout.outerRank);
    const operands = operandDtypes.map((dtype, index) => this.#operand(dtype, index, addresses));
    this.#inputs = operands.slice(0, kernel.inputs.length);
    this.#outputs = operands.slice(kernel.inputs.length);
    this.#scalars = kernel.scalars.map((type) => splatOf(code, this.#parameter(), type));
    const loads = kernel.stages.flatMap(({ value }) => loadsOf(value));
    this.#readDirectly = new Set(loads.filter(({ at }) => !at).map(({ input }) => input));
    this.#rowIndex = code.local("v128");
    this.#positions = code.local("v128");
  }

  print(): void {
    const code = this.#code;
    const [row, endRow] = [code.local("i32"), code.local("i32")];
    const [firstBlock, endBlock] = [code.parameter(0), code.parameter(1)];
    code.get(firstBlock).get(this.#rowsPerBlock).op("i32.mul").set(row);
    code.get(endBlock).get(this.#rowsPerBlock).op("i32.mul").set(endRow);
    limitTo(code, endRow, this.#rows);
    const moveToNextRow = this.#setRowAddresses(row);
    forRange(code, row, endRow, 1, () => {
      this.#printRow(row);
      moveToNextRow();
    });
  }

  #printRow(row: Local): void {
    const code = this.#code;
    code.get(row).op("i32x4.splat").set(this.#rowIndex);
    // The last row of a divided vector may be shorter.
    const count = code.local("i32");
    code.get(this.#elements).get(row).get(this.#inner).op("i32.mul").op("i32.sub").set(count);
    limitTo(code, count, this.#inner);
    for (const [index, input] of this.#inputs.entries()) {
      // An operand that is only read at an index may have its row start outside of its memory, such as a flipped operand.
      if (input.inner !== "none" || !this.#readDirectly.has(index)) continue;
      code.get(input.start);
      pushSplat(code, input.dtype);
      code.set(input.splat);
    }
    const { stages } = this.#kernel;
    const firstStore = stages.findIndex(({ kind }) => kind === "store");
    for (const [index, stage] of stages.entries()) {
      if (index === firstStore) this.#skipUnchangedRow(count);
      this.#printStage(stage, index, count);
    }
  }

  /** Leaves no elements to store in a row that stays unchanged. */
  #skipUnchangedRow(count: Local): void {
    const { changes } = this.#layout;
    if (!changes) return;
    const code = this.#code;
    code.get(count).i32(0);
    pushExpression(code, changes, this.#leaves(this.#lanes));
    code.lane("i32x4.extract_lane", 0).op("select").set(count);
  }

  /**
   * Sets the address of every operand's row. Returns a function that prints the move to the next row: additions, because the divisions that
   * find the coordinates of a row take longer than a short row.
   */
  #setRowAddresses(row: Local): () => void {
    const code = this.#code;
    const operands = [...this.#inputs, ...this.#outputs];
    for (const { address, start } of operands) code.get(address).set(start);
    const rest = code.local("i32");
    code.get(row).set(rest);
    const axes = this.#outerSizes.map((size) => ({
      size,
      coordinate: code.local("i32"),
      /** The bytes to the next row along this axis, from the last row of the next axis if there is one. */
      steps: operands.map(() => code.local("i32")),
    }));
    for (const [axis, { size, coordinate, steps }] of [...axes.entries()].reverse()) {
      code.get(rest);
      if (axis > 0) code.get(size).op("i32.rem_u");
      code.set(coordinate);
      if (axis > 0) code.get(rest).get(size).op("i32.div_u").set(rest);
      const inner = axes[axis + 1];
      for (const [index, { start, outerStrides, bytes }] of operands.entries()) {
        const [stride, step] = [outerStrides[axis], steps[index]];
        if (!stride || !step) continue;
        code.get(stride).i32(bytes).op("i32.mul").set(step);
        setToElement(code, start, start, coordinate, step);
        const innerStride = outerStrides[axis + 1];
        if (!inner || !innerStride) continue;
        code.get(step).get(inner.size).get(innerStride).op("i32.mul").i32(bytes).op("i32.mul");
        code.op("i32.sub").set(step);
      }
    }
    const move = (axis: number): void => {
      const { size, coordinate, steps } = axes[axis] ?? {};
      if (!size || !coordinate || !steps) return;
      for (const [index, { start }] of operands.entries()) {
        const step = steps[index];
        if (step) advance(code, start, step);
      }
      if (axis === 0) return;
      advance(code, coordinate, 1);
      code.get(coordinate).get(size).op("i32.eq");
      code.if(() => {
        code.i32(0).set(coordinate);
        move(axis - 1);
      });
    };
    return () => move(axes.length - 1);
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
    const invariants = this.#computeInvariant(stage.value);
    this.#printElements(count, [...this.#readBy(stage.value), output], (lanes) => {
      pushExpression(code, stage.value, this.#leaves(lanes), invariants);
      code.set(value);
      storeElements(code, output.dtype, lanes, output.cursor, value);
    });
  }

  /** Lanes are accumulated separately and combined in a fixed order, so that the bits depend only on the row's length. */
  #printReduction(op: ReduceOp, value: Expression, stage: number, count: Local): void {
    const code = this.#code;
    const { type } = value;
    // Float min and max have a long latency, so several chains run in parallel; their order does not matter.
    const isMinMax = op === "min" || op === "max";
    const accumulators = Array.from({ length: isMinMax ? 4 : 1 }, () => code.local("v128"));
    for (const accumulator of accumulators) {
      pushConstant(code, type, identityOf(op, type));
      code.set(accumulator);
    }
    const firstLane = code.local("v128");
    code.i32(-1).op("i32x4.splat").set(firstLane);
    for (let lane = type === "f64" || type === "i64" ? 2 : 1; lane < 4; lane++) {
      code.get(firstLane).i32(0).lane("i32x4.replace_lane", lane).set(firstLane);
    }
    const invariants = this.#computeInvariant(value);
    const addVector = (lanes: Lanes, vector: number): void => {
      const accumulator = required(accumulators[vector], `vector ${vector}`, this.#kernel.name);
      code.get(accumulator);
      pushExpression(code, value, this.#leaves(lanes, vector), invariants);
      pushBinary(code, op, type);
      if (lanes === 1) code.get(accumulator).get(firstLane).op("v128.bitselect");
      code.set(accumulator);
    };
    this.#printElements(count, this.#readBy(value), addVector, accumulators.length);
    const total = code.local("v128");
    this.#reduced.set(stage, total);
    for (const [index, accumulator] of accumulators.entries()) {
      code.get(accumulator);
      if (index > 0) pushBinary(code, op, type);
    }
    code.set(total);
    this.#reduceLanes(op, type, total);
    code.set(total);
  }

  /** Computes the row-invariant subexpressions of a value once, before the row's elements. */
  #computeInvariant(value: Expression): ReadonlyMap<Expression, Local> {
    const code = this.#code;
    const invariants = new Map<Expression, Local>();
    for (const node of invariantNodesOf(value, (input) => this.#inputs[input]?.inner === "none")) {
      const local = code.local("v128");
      pushExpression(code, node, this.#leaves(this.#lanes));
      code.set(local);
      invariants.set(node, local);
    }
    return invariants;
  }

  /** Pushes (0 ∘ 1) ∘ (2 ∘ 3) of the lanes in use, splatted. */
  #reduceLanes(op: ReduceOp, type: Compute, vector: Local): void {
    const code = this.#code;
    const pushLane = (lane: number): void => {
      const shape = ({ f32: "f32x4", f64: "f64x2", i32: "i32x4", i64: "i64x2" } as const)[type];
      code.get(vector).lane(`${shape}.extract_lane`, lane);
      splat(code, type);
    };
    const combine = (): void => pushBinary(code, op, type);
    pushLane(0);
    pushLane(1);
    combine();
    // Vectors of two elements use two lanes of narrower types, too.
    if (type === "f64" || type === "i64" || this.#lanes === 2) return;
    pushLane(2);
    pushLane(3);
    combine();
    combine();
  }

  /**
   * Runs the body over a row's elements: `unroll` neighbouring vectors at a time, then single vectors, then the tail element by
   * element.
   */
  #printElements(
    count: Local,
    operands: readonly Operand[],
    body: (lanes: Lanes, vector: number) => void,
    unroll = 1,
  ): void {
    const code = this.#code;
    const varying = operands.filter(({ inner }) => inner !== "none");
    const remaining = code.local("i32");
    code.get(count).set(remaining);
    this.#moveToStart(operands);
    const loop = (lanes: Lanes, vectors: number): void => {
      const elements = lanes * vectors;
      code.block((leave) => {
        code.loop((again) => {
          code.get(remaining).i32(elements).op("i32.lt_u").branchIf(leave);
          for (let vector = 0; vector < vectors; vector++) body(lanes, vector);
          for (const operand of varying) this.#advance(operand, elements);
          code.get(this.#positions).i32(elements).op("i32x4.splat").op("i32x4.add").set(this.#positions);
          code.get(remaining).i32(elements).op("i32.sub").set(remaining).branch(again);
        });
      });
    };
    if (this.#lanes > 1 && unroll > 1) loop(this.#lanes, unroll);
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

  /** The leaves of the current vector, or of the `vector`-th after it. */
  #leaves(lanes: Lanes, vector = 0): Leaves {
    const code = this.#code;
    const first = vector * lanes;
    return {
      pushLoad: (index, at) => {
        const input = required(this.#inputs[index], `input ${index}`, this.#kernel.name);
        const { dtype, cursor, inner } = input;
        if (at) {
          const isInvariant = (other: number): boolean => this.#inputs[other]?.inner === "none";
          const uniform = isUniform(at, isInvariant);
          const isVarying = inner !== "none";
          pushIndexed(code, {
            dtype,
            cursor,
            first: isVarying ? first : 0,
            isVarying,
            lanes,
            isUniform: uniform,
          });
        } else if (inner === "none") code.get(input.splat);
        else pushElements(code.get(cursor), dtype, lanes, first * input.bytes);
      },
      pushScalar: (index) => code.get(required(this.#scalars[index], `scalar ${index}`, this.#kernel.name)),
      pushReduced: (stage) =>
        code.get(required(this.#reduced.get(stage), `an earlier reduction ${stage}`, this.#kernel.name)),
      pushPosition: () => {
        code.get(this.#positions);
        if (first > 0) code.i32(first).op("i32x4.splat").op("i32x4.add");
      },
      pushRow: () => code.get(this.#rowIndex),
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
      splat: this.#code.local("v128"),
    };
  }

  #parameter(): Local {
    return this.#code.parameter(this.#nextParameter++);
  }

  #parameters(count: number): Local[] {
    return Array.from({ length: count }, () => this.#parameter());
  }
}

/** Two lanes with any f64 or i64; one lane with a strided operand. */
export function lanesOf({ inputs, outputs, stages }: RowKernel, inner: readonly InnerStride[]): Lanes {
  if (inner.includes("any")) return 1;
  const isWide = [...inputs, ...outputs.map(({ dtype }) => dtype)].some(
    (dtype) => dtype === "f64" || dtype === "i64",
  );
  return isWide || stages.some(({ value }) => uses64Bits(value)) ? 2 : 4;
}

/** Its inputs, none of which may be a draw: scalar code would compute Philox for every vector again. */
function inputsInMemory({ name, inputs }: RowKernel): readonly Dtype[] {
  return inputs.map((dtype, input) => {
    if (dtype !== "draw") return dtype;
    throw new HoldfastError(
      "UNSUPPORTED",
      `Kernel "${name}": input ${input} is a random draw, which kernels on the CPU cannot compute. Store the random numbers in memory first, and load them.`,
    );
  });
}

function requireFitting({ name, inputs, outputs }: RowKernel, { inner }: Layout): void {
  const operands = inputs.length + outputs.length;
  if (inner.length === operands) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${name}" has ${operands} operands, but the layout has strides of ${inner.length}. Pass the stride of each operand.`,
  );
}
