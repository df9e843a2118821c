/**
 * Prints a column kernel as CUDA C++. A block takes a few neighbouring columns, and its threads share their rows.
 *
 * A column has a fixed number of partial results, each of every so many-th row, from top to bottom, and they are joined in
 * halves: the first with the one in the middle, and so on, until one is left. Whether a partial result has a thread of
 * its own or shares one with others follows from how many columns the block takes, and changes no bits: these follow from
 * the number of rows alone.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { ColumnKernel, ColumnPlaces, Compute, Dtype, Expression, ReduceOp } from "../../../ir/index.js";
import { checkColumnKernel, identityOf } from "../../../ir/index.js";
import type { ColumnStride } from "../../launch-config.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, expressionPrinter, type Leaves, literal } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { narrowed, widened } from "./row-operands.js";

const warp = 32;

/** All numbers are powers of two. */
export interface ColumnLayout {
  readonly strides: readonly ColumnStride[];
  /** Partial results of a column. */
  readonly parts: number;
  /** Threads that share a column: a warp at least, and at most one for each partial result. */
  readonly lanes: number;
  /** Columns of a block; no more than a block has warps. */
  readonly columns: number;
  /** How many rows of each partial result are read before the first of them is needed. */
  readonly turns: number;
}

/** The parameters: the inputs, the outputs, rows and columns as u32, each input's row stride; then the kernel's scalars. */
export function printColumnKernel(kernel: ColumnKernel, layout: ColumnLayout): KernelSource {
  checkColumnKernel(kernel);
  return new Printer(kernel, layout).print();
}

/** One of a kernel's values, and the names of what it has in the printed code. */
export interface Reduction {
  readonly value: Expression;
  readonly dtype: Dtype;
  readonly real: string;
  readonly sums: string;
  readonly shared: string;
  readonly output: string;
}

class Printer {
  readonly #kernel: ColumnKernel;
  readonly #layout: ColumnLayout;
  readonly #text = new KernelText();
  readonly #reductions: readonly Reduction[];
  /** Partial results of a thread. */
  readonly #held: number;

  constructor(kernel: ColumnKernel, layout: ColumnLayout) {
    this.#kernel = kernel;
    this.#layout = layout;
    this.#held = layout.parts / layout.lanes;
    const text = this.#text;
    const { inputs, outputs, scalars, values } = kernel;
    for (const [index, dtype] of inputs.entries()) text.pointer("in", elementTypes[dtype].type, `in${index}`);
    this.#reductions = values.map((value, index) => {
      const dtype = outputs[index] ?? "f32";
      return {
        value,
        dtype,
        real: computeTypes[value.type],
        sums: `sums${index}`,
        shared: `shared${index}`,
        output: text.pointer("inout", elementTypes[dtype].type, `out${index}`),
      };
    });
    text.scalar("u32", "rows");
    text.scalar("u32", "columns");
    for (const index of inputs.keys()) text.scalar("i32", `step${index}`);
    for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);
  }

  print(): KernelSource {
    const text = this.#text;
    const { columns, lanes } = this.#layout;
    text.line(`const unsigned lane = threadIdx.x / ${columns}u;`);
    text.define("const unsigned", "near", `blockIdx.x * ${columns}u + threadIdx.x % ${columns}u`);
    // Threads with no column go along with the last one's, since all of a block join their results.
    text.define("const unsigned", "position", "near < columns ? near : columns - 1u");
    text.line(`const unsigned whole = rows - rows % ${this.#stride}u;`);
    for (const { value, real, sums } of this.#reductions) {
      const identity = literal(value.type, identityOf(this.#kernel.op, value.type));
      text.line(`${real} ${sums}[${this.#held}] = {${Array(this.#held).fill(identity).join(", ")}};`);
    }
    printStrides(this.#text, this.#stride, (beginRow) => this.#printStride(beginRow));
    for (const reduction of this.#reductions) this.#combineHalves(reduction, reduction.sums, this.#held);
    this.#printCombines();
    // With few registers a thread would wait for some rows before it asks for the next.
    return text.finish(this.#kernel.name, columns * lanes, 1);
  }

  get #stride(): number {
    return this.#layout.parts * this.#layout.turns;
  }

  #join({ value }: Reduction, a: string, b: string): string {
    return binary(this.#text, this.#kernel.op, value.type, a, b);
  }

  #printStride(beginRow: BeginRow): void {
    const text = this.#text;
    const { lanes, turns } = this.#layout;
    text.unrolled("part", this.#held * turns, () => {
      const resultOf = beginRow(`part * ${lanes}u + lane`);
      const print = expressionPrinter(text, this.#kernel.values, this.#leaves());
      for (const reduction of this.#reductions) {
        const sum = `${reduction.sums}[part % ${this.#held}u]`;
        const joined = text.keep(reduction.real, this.#join(reduction, sum, print(reduction.value)));
        text.line(`${sum} = ${resultOf(sum, joined)};`);
      }
    });
  }

  #leaves(): Leaves {
    const text = this.#text;
    const { strides } = this.#layout;
    return {
      load: ({ input }, at) => {
        const column = strides[input] === "none" ? "" : " + position";
        const index = at === undefined ? "" : ` + ${at}`;
        const place = `in${input}[(long long)(int)row * step${input}${column}${index}]`;
        return widened(text, this.#kernel.inputs[input] ?? "f32", place);
      },
      scalar: (index) => `scalar${index}`,
      reduced: () => "",
      position: () => "(int)position",
      row: () => "(int)row",
    };
  }

  /** Joins the threads' results through shared memory: a warp has a column. */
  #printCombines(): void {
    const text = this.#text;
    const { columns, lanes } = this.#layout;
    // Between columns as far that the threads of a warp store to different banks.
    const stride = lanes + warp / columns;
    for (const reduction of this.#reductions) {
      const { real, sums, shared } = reduction;
      text.line(`__shared__ ${real} ${shared}[${columns * stride}];`);
      text.line(`${shared}[threadIdx.x % ${columns}u * ${stride}u + lane] = ${sums}[0];`);
    }
    text.line("__syncthreads();");
    text.line(`const unsigned own = threadIdx.x / ${warp}u;`);
    text.line(`if (own >= ${columns}u) return;`);
    text.line(`const unsigned place = threadIdx.x % ${warp}u;`);
    text.line(`const unsigned column = blockIdx.x * ${columns}u + own;`);
    const each = lanes / warp;
    for (const [index, reduction] of this.#reductions.entries()) {
      const { real, shared, output, dtype } = reduction;
      const joined = `joined${index}`;
      text.line(`${real} ${joined}[${each}];`);
      text.unrolled("part", each, () => {
        text.line(`${joined}[part] = ${shared}[own * ${stride}u + part * ${warp}u + place];`);
      });
      this.#combineHalves(reduction, joined, each);
      const total = `${joined}[0]`;
      for (let distance = warp / 2; distance >= 1; distance /= 2) {
        const other = `__shfl_xor_sync(0xffffffffu, ${total}, ${distance})`;
        text.line(`${total} = ${this.#join(reduction, total, other)};`);
      }
      const target = `${output}[${targetOf(this.#kernel.places, "column")}]`;
      text.line(`if (place == 0u && column < columns) ${target} = ${narrowed(text, dtype, total)};`);
    }
  }

  #combineHalves({ value }: Reduction, values: string, count: number): void {
    combineHalves(this.#text, this.#kernel.op, value.type, values, count);
  }
}

/** Where a column's result stands in an output. */
export function targetOf(places: ColumnPlaces | undefined, column: string): string {
  if (!places) return column;
  const { step, runs } = places;
  if (!runs) return `(long long)${column} * ${step}`;
  const { length, between } = runs;
  return `(long long)(${column} / ${length}u) * ${between} + (long long)(${column} % ${length}u) * ${step}`;
}

/** Prints what leaves the first of an array's values joined with all others. */
export function combineHalves(
  text: KernelText,
  op: ReduceOp,
  type: Compute,
  values: string,
  count: number,
): void {
  for (let half = count / 2; half >= 1; half /= 2) {
    text.unrolled("part", half, () => {
      const joined = binary(text, op, type, `${values}[part]`, `${values}[part + ${half}u]`);
      text.line(`${values}[part] = ${joined};`);
    });
  }
}

/** Prints which row it is, given its place in the stride, and tells what becomes of a partial result. */
export type BeginRow = (place: string) => (sum: string, joined: string) => string;

/**
 * All rows up to `rows`, so many in a stride; `whole` is where the last whole one ends. No test stands between the rows of a stride, so
 * that all of them are on their way together: each comes from far.
 */
export function printStrides(
  text: KernelText,
  stride: number,
  printStride: (beginRow: BeginRow) => void,
): void {
  text.block(`for (unsigned first = 0u; first < whole; first += ${stride}u)`, () => {
    printStride((place) => {
      text.line(`const unsigned row = first + ${place};`);
      return (_, joined) => joined;
    });
  });
  text.block("if (whole < rows)", () => {
    printStride((place) => {
      // Behind the end the last row is read again, and not added: a choice between two values, which waits for no test.
      text.line(`const unsigned next = whole + ${place};`);
      text.line("const unsigned row = next < rows ? next : rows - 1u;");
      return (sum, joined) => `next < rows ? ${joined} : ${sum}`;
    });
  });
}
