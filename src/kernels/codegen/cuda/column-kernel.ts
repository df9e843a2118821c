/**
 * Prints column kernels (reductions over rows) as CUDA C++. A block takes a few neighbouring columns, and its threads share their rows.
 *
 * A column has a fixed number of partials: partial p reduces the rows ≡ p modulo that number, from top to bottom. A binary tree then
 * combines partial p with partial p + half, until one is left. How many partials one thread computes depends on the layout; the bits
 * of the result depend on the number of rows alone.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { ColumnKernel, Compute, Dtype, Expression, OutputLayout, ReduceOp } from "../../../ir/index.js";
import { checkColumnKernel, identityOf } from "../../../ir/index.js";
import { warpSize } from "../../cost-model.js";
import type { ColumnRuns, ColumnStride } from "../../launch-config.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, expressionPrinter, type Leaves, literal } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { narrowed, widened } from "./row-operands.js";

/** All numbers are powers of two. */
export interface ColumnLayout {
  readonly strides: readonly ColumnStride[];
  /** Default: one run. */
  readonly runs?: ColumnRuns;
  readonly usesFastMath?: boolean;
  /** Partials of a column. */
  readonly partials: number;
  /** Threads per column: one, or at least a warp and at most one per partial. */
  readonly lanes: number;
  /** Columns of a block; at most as many as it has warps if a column has several threads. */
  readonly columns: number;
  /** How many rows of each partial are loaded before the first is used. */
  readonly unroll: number;
  /** A bound of the rows, if it is at most the number of partials. Further partials load nothing. Default: no bound is known. */
  readonly loadedRows?: number;
}

/**
 * The parameters: the inputs, the outputs, rows and columns as u32, each input's row stride, with runs each input's distance between them;
 * then the kernel's scalars.
 */
export function printColumnKernel(kernel: ColumnKernel, layout: ColumnLayout): KernelSource {
  checkColumnKernel(kernel);
  return new Printer(kernel, layout).print();
}

/** A value that the kernel reduces, and the names of its locals in the generated code. */
export interface Reduction {
  readonly value: Expression;
  readonly dtype: Dtype;
  readonly real: string;
  readonly partials: string;
  readonly shared: string;
  readonly output: string;
}

class Printer {
  readonly #kernel: ColumnKernel;
  readonly #layout: ColumnLayout;
  readonly #text: KernelText;
  readonly #reductions: readonly Reduction[];
  /** Partials of a thread. */
  readonly #threadPartials: number;

  constructor(kernel: ColumnKernel, layout: ColumnLayout) {
    this.#kernel = kernel;
    this.#layout = layout;
    this.#text = new KernelText({ usesFastMath: layout.usesFastMath === true });
    this.#threadPartials = layout.partials / layout.lanes;
    const text = this.#text;
    const { inputs, outputs, scalars, values } = kernel;
    for (const [index, dtype] of inputs.entries()) text.pointer("in", elementTypes[dtype].type, `in${index}`);
    this.#reductions = values.map((value, index) => {
      const dtype = outputs[index] ?? "f32";
      return {
        value,
        dtype,
        real: computeTypes[value.type],
        partials: `partials${index}`,
        shared: `shared${index}`,
        output: text.pointer("inout", elementTypes[dtype].type, `out${index}`),
      };
    });
    text.scalar("u32", "rows");
    text.scalar("u32", "columns");
    for (const index of inputs.keys()) text.scalar("i32", `stride${index}`);
    if (layout.runs) for (const index of inputs.keys()) text.scalar("i32", `run${index}`);
    for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);
  }

  print(): KernelSource {
    const text = this.#text;
    const { columns, lanes } = this.#layout;
    text.line(`const unsigned lane = threadIdx.x / ${columns}u;`);
    text.define("const unsigned", "threadColumn", `blockIdx.x * ${columns}u + threadIdx.x % ${columns}u`);
    // Threads beyond the last column repeat it, because all threads of a block take part in the reduction.
    text.define("const unsigned", "position", "threadColumn < columns ? threadColumn : columns - 1u");
    const { runs } = this.#layout;
    if (runs) {
      text.define("const int", "run", `(int)(position / ${runs.length}u)`);
      text.define("const unsigned", "inRun", `position % ${runs.length}u`);
    }
    text.line(`const unsigned unrolledRows = rows - rows % ${this.#stride}u;`);
    for (const { value, real, partials } of this.#reductions) {
      const identity = literal(value.type, identityOf(this.#kernel.op, value.type));
      text.line(
        `${real} ${partials}[${this.#threadPartials}] = {${Array(this.#threadPartials).fill(identity).join(", ")}};`,
      );
    }
    printStrides(this.#text, this.#stride, (beginRow) => this.#printStride(beginRow));
    for (const reduction of this.#reductions)
      this.#combineHalves(reduction, reduction.partials, this.#threadPartials);
    if (lanes === 1) this.#printStores();
    else this.#printCombines();
    // One block per SM: with fewer registers a thread could not keep all its loads in flight.
    return text.toKernel(this.#kernel.name, columns * lanes, 1);
  }

  get #stride(): number {
    return this.#layout.partials * this.#layout.unroll;
  }

  #combine({ value }: Reduction, a: string, b: string): string {
    return binary(this.#text, this.#kernel.op, value.type, a, b);
  }

  #printStride(beginRow: BeginRow): void {
    const text = this.#text;
    const { lanes, unroll } = this.#layout;
    text.unrolled("partial", this.#layout.loadedRows ?? this.#threadPartials * unroll, () => {
      const resultOf = beginRow(`partial * ${lanes}u + lane`);
      const print = expressionPrinter(text, this.#kernel.values, this.#leaves());
      for (const reduction of this.#reductions) {
        const partial = `${reduction.partials}[partial % ${this.#threadPartials}u]`;
        const combined = text.keep(reduction.real, this.#combine(reduction, partial, print(reduction.value)));
        text.line(`${partial} = ${resultOf(partial, combined)};`);
      }
    });
  }

  #leaves(): Leaves {
    const text = this.#text;
    return {
      load: ({ input }, at) => {
        const index = at === undefined ? "" : ` + ${at}`;
        const element = `in${input}[(long long)(int)row * stride${input}${this.#columnOffset(input)}${index}]`;
        return widened(text, this.#kernel.inputs[input] ?? "f32", element);
      },
      scalar: (index) => `scalar${index}`,
      reduced: () => "",
      position: () => "(int)position",
      row: () => "(int)row",
    };
  }

  /** C++: the offset of an input's element from the first one of its row. */
  #columnOffset(input: number): string {
    const { strides, runs } = this.#layout;
    const inRun = {
      ...{ none: "", unit: ` + ${runs ? "inRun" : "position"}` },
      group: ` + inRun / ${runs?.group ?? 1}u`,
    };
    return `${runs ? ` + (long long)run * run${input}` : ""}${inRun[strides[input] ?? "unit"]}`;
  }

  /** Stores the results if a thread has all partials of its column. */
  #printStores(): void {
    const text = this.#text;
    for (const { output, dtype, partials } of this.#reductions) {
      const target = `${output}[${outputIndex(this.#kernel.outputLayout, "threadColumn")}]`;
      text.line(`if (threadColumn < columns) ${target} = ${narrowed(text, dtype, `${partials}[0]`)};`);
    }
  }

  /** Combines the threads' partials through shared memory: one warp per column. */
  #printCombines(): void {
    const text = this.#text;
    const { columns, lanes } = this.#layout;
    // Padding between columns, so that the threads of a warp store to different banks.
    const stride = lanes + warpSize / columns;
    for (const reduction of this.#reductions) {
      const { real, partials, shared } = reduction;
      text.line(`__shared__ ${real} ${shared}[${columns * stride}];`);
      text.line(`${shared}[threadIdx.x % ${columns}u * ${stride}u + lane] = ${partials}[0];`);
    }
    text.line("__syncthreads();");
    text.line(`const unsigned warp = threadIdx.x / ${warpSize}u;`);
    text.line(`if (warp >= ${columns}u) return;`);
    text.line(`const unsigned warpLane = threadIdx.x % ${warpSize}u;`);
    text.line(`const unsigned column = blockIdx.x * ${columns}u + warp;`);
    const lanePartials = lanes / warpSize;
    for (const [index, reduction] of this.#reductions.entries()) {
      const { real, shared, output, dtype } = reduction;
      const combined = `combined${index}`;
      text.line(`${real} ${combined}[${lanePartials}];`);
      text.unrolled("partial", lanePartials, () => {
        text.line(`${combined}[partial] = ${shared}[warp * ${stride}u + partial * ${warpSize}u + warpLane];`);
      });
      this.#combineHalves(reduction, combined, lanePartials);
      const total = `${combined}[0]`;
      for (let distance = warpSize / 2; distance >= 1; distance /= 2) {
        const other = `__shfl_xor_sync(0xffffffffu, ${total}, ${distance})`;
        text.line(`${total} = ${this.#combine(reduction, total, other)};`);
      }
      const target = `${output}[${outputIndex(this.#kernel.outputLayout, "column")}]`;
      text.line(`if (warpLane == 0u && column < columns) ${target} = ${narrowed(text, dtype, total)};`);
    }
  }

  #combineHalves({ value }: Reduction, values: string, count: number): void {
    combineHalves(this.#text, this.#kernel.op, value.type, values, count);
  }
}

/** C++: the index of a column's result in an output. */
export function outputIndex(layout: OutputLayout | undefined, column: string): string {
  if (!layout) return column;
  const { stride, runs } = layout;
  if (!runs) return `(long long)${column} * ${stride}`;
  const { length, runStride } = runs;
  return `(long long)(${column} / ${length}u) * ${runStride} + (long long)(${column} % ${length}u) * ${stride}`;
}

/** Prints a tree reduction of an array into its first element. */
export function combineHalves(
  text: KernelText,
  op: ReduceOp,
  type: Compute,
  values: string,
  count: number,
): void {
  for (let half = count / 2; half >= 1; half /= 2) {
    text.unrolled("partial", half, () => {
      const combined = binary(text, op, type, `${values}[partial]`, `${values}[partial + ${half}u]`);
      text.line(`${values}[partial] = ${combined};`);
    });
  }
}

/** Prints the local `row` from its offset in the iteration. Returns a function that prints the new value of a partial. */
export type BeginRow = (offset: string) => (partial: string, combined: string) => string;

/**
 * Prints the loop over all rows, `stride` rows per iteration; `unrolledRows` is where the last full iteration ends. No branch separates
 * the rows of an iteration, so that their loads are in flight together.
 */
export function printStrides(
  text: KernelText,
  stride: number,
  printStride: (beginRow: BeginRow) => void,
): void {
  text.block(`for (unsigned first = 0u; first < unrolledRows; first += ${stride}u)`, () => {
    printStride((offset) => {
      text.line(`const unsigned row = first + ${offset};`);
      return (_, combined) => combined;
    });
  });
  text.block("if (unrolledRows < rows)", () => {
    printStride((offset) => {
      // Beyond the end the last row is loaded again and ignored by a select, which needs no branch.
      text.line(`const unsigned next = unrolledRows + ${offset};`);
      text.line("const unsigned row = next < rows ? next : rows - 1u;");
      return (partial, combined) => `next < rows ? ${combined} : ${partial}`;
    });
  });
}
