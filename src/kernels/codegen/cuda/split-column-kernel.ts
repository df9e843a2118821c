/**
 * Two-phase (split) column reductions, as device functions for combo kernels. The first five levels of a column's tree over 1024 partials
 * only combine partials that are equal mod 32. So in the first phase a block takes every 32nd row of its columns, reduces the 32 partials
 * of these rows and writes one partial. The second phase combines the partials of 32 blocks.
 *
 * A column with fewer rows has fewer partials, and one block reduces all of them in a single phase. The order of operations, and so the
 * bits, are those of `printColumnKernel`.
 */

import type { ColumnKernel, Compute, OutputLayout, ReduceOp } from "../../../ir/index.js";
import { checkColumnKernel, type Dtype, dtypes, identityOf } from "../../../ir/index.js";
import type { ColumnStride } from "../../launch-config.js";
import { type BeginRow, combineHalves, outputIndex, printStrides, type Reduction } from "./column-kernel.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, expressionPrinter, type Leaves, literal } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { narrowed, widened } from "./row-operands.js";

/** Threads of a block, in either phase. */
export const splitThreads = 256;
/** Neighbouring threads per column in the second phase, and so the columns of a block. */
const combineLanes = 4;
export const combineColumns = splitThreads / combineLanes;
/** How many blocks split the rows of a column, at least and at most. Scratch memory is allocated in units of the least partials in f32. */
export const [minRowSplits, maxRowSplits] = [32, 256];
export const unitBytes = minRowSplits * dtypes.f32.bytes;

/** All numbers except `unroll` are powers of two. */
export interface SplitLayout {
  readonly strides: readonly ColumnStride[];
  /** How many blocks split the rows of a column: 1 (single phase), or `minRowSplits` to `maxRowSplits`. */
  readonly splits: number;
  /** Partials of a column that a block computes. */
  readonly partials: number;
  /** Threads along a row, and neighbouring columns (vector width) of each; the other threads of the block have other rows. */
  readonly lanes: number;
  readonly width: number;
  /** How many rows of each partial are loaded before the first is used. */
  readonly unroll: number;
  readonly usesFastMath?: boolean;
}

/** The number of partials that a thread computes for each of its columns. */
export function threadPartials({ partials, lanes }: Pick<SplitLayout, "partials" | "lanes">): number {
  return (partials * lanes) / splitThreads;
}

/**
 * The first phase, or the single one. Parameters: the inputs; the outputs or, if the rows are split, the scratch memory and the unit of
 * each value in it; rows and columns as u32, each input's row stride; then the kernel's scalars.
 */
export function printColumnPartials(kernel: ColumnKernel, layout: SplitLayout, name: string): BlockFunction {
  checkColumnKernel(kernel);
  return new Printer(kernel, layout).print(name);
}

class Printer {
  readonly #kernel: ColumnKernel;
  readonly #layout: SplitLayout;
  readonly #text: KernelText;
  readonly #reductions: readonly Reduction[];
  /** Threads per column, and the partials that each computes. */
  readonly #groups: number;
  readonly #threadPartials: number;
  /** Columns of a block. */
  readonly #columns: number;

  constructor(kernel: ColumnKernel, layout: SplitLayout) {
    this.#kernel = kernel;
    this.#layout = layout;
    this.#text = new KernelText({ usesFastMath: layout.usesFastMath === true });
    this.#groups = splitThreads / layout.lanes;
    this.#threadPartials = threadPartials(layout);
    this.#columns = layout.lanes * layout.width;
    const text = this.#text;
    const { inputs, outputs, scalars, values } = kernel;
    for (const [index, dtype] of inputs.entries()) text.pointer("in", elementTypes[dtype].type, `in${index}`);
    if (this.#isSplit) text.pointer("partial-out", "unsigned char", "scratch");
    this.#reductions = values.map((value, index) => {
      const dtype = outputs[index] ?? "f32";
      const output = `out${index}`;
      if (this.#isSplit) text.scalar("u32", `unit${index}`);
      else text.pointer("inout", elementTypes[dtype].type, output);
      const real = computeTypes[value.type];
      return { value, dtype, real, partials: `partials${index}`, shared: `shared${index}`, output };
    });
    text.scalar("u32", "rows");
    text.scalar("u32", "columns");
    for (const index of inputs.keys()) text.scalar("i32", `stride${index}`);
    for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);
  }

  /** True if it writes partials for a second phase. */
  get #isSplit(): boolean {
    return this.#layout.splits > 1;
  }

  print(name: string): BlockFunction {
    const text = this.#text;
    const { lanes, width } = this.#layout;
    text.line(`const unsigned lane = threadIdx.x % ${lanes}u;`);
    text.line(`const unsigned group = threadIdx.x / ${lanes}u;`);
    if (this.#isSplit) {
      // Consecutive blocks read neighbouring columns, then the next rows.
      text.line(`const unsigned columnBlocks = (columns + ${this.#columns - 1}u) / ${this.#columns}u;`);
      text.line("const unsigned columnBlock = block % columnBlocks;");
      text.line("const unsigned split = block / columnBlocks;");
    } else text.line("const unsigned columnBlock = block;");
    text.define("const unsigned", "threadColumn", `(columnBlock * ${lanes}u + lane) * ${width}u`);
    // Threads beyond the last columns repeat them, because all threads of a block take part in the reduction.
    text.define("const unsigned", "position", `threadColumn < columns ? threadColumn : columns - ${width}u`);
    text.line(`const unsigned unrolledRows = rows - rows % ${this.#stride}u;`);
    for (const { value, real, partials } of this.#reductions) {
      text.line(`${text.use("Vec")}<${real}, ${width}> ${partials}[${this.#threadPartials}];`);
      this.#unrollLanes("partial", this.#threadPartials, () => {
        const identity = literal(value.type, identityOf(this.#kernel.op, value.type));
        text.line(`${partials}[partial].element[k] = ${identity};`);
      });
    }
    printStrides(text, this.#stride, (beginRow) => this.#printStride(beginRow));
    const doubles = this.#printCombines();
    const leadingParameters = ["const unsigned block", "double* const memory"];
    return {
      ...text.toFunction(name, leadingParameters),
      sharedDoubles: doubles,
      leadingArguments: ["block", "memory"],
    };
  }

  get #stride(): number {
    return this.#layout.partials * this.#layout.splits * this.#layout.unroll;
  }

  #unrollLanes(counter: string, count: number, body: () => void): void {
    this.#text.unrolled(counter, count, () => this.#text.unrolled("k", this.#layout.width, body));
  }

  #combine({ value }: Reduction, a: string, b: string): string {
    return binary(this.#text, this.#kernel.op, value.type, a, b);
  }

  #printStride(beginRow: BeginRow): void {
    const text = this.#text;
    const { splits, unroll, width } = this.#layout;
    text.unrolled("partial", this.#threadPartials * unroll, () => {
      const offset = `partial * ${this.#groups}u + group`;
      const resultOf = beginRow(this.#isSplit ? `(${offset}) * ${splits}u + split` : offset);
      this.#printLoads();
      text.unrolled("k", width, () => {
        const print = expressionPrinter(text, this.#kernel.values, this.#leaves());
        for (const reduction of this.#reductions) {
          const partial = `${reduction.partials}[partial % ${this.#threadPartials}u].element[k]`;
          const combined = text.keep(
            reduction.real,
            this.#combine(reduction, partial, print(reduction.value)),
          );
          text.line(`${partial} = ${resultOf(partial, combined)};`);
        }
      });
    });
  }

  /** Loads the row's elements of the thread's columns: a vector of each input, or the one element that all columns share. */
  #printLoads(): void {
    const text = this.#text;
    const { strides, width } = this.#layout;
    for (const [index, dtype] of this.#kernel.inputs.entries()) {
      const start = this.#startOf(index);
      if (strides[index] === "none")
        text.define("const auto", `invariant${index}`, widened(text, dtype, `in${index}[${start}]`));
      else
        text.define("const auto", `vec${index}`, `${text.use("loadVec")}<${width}>(in${index} + ${start})`);
    }
  }

  /** C++: the offset of the thread's first element in the row. */
  #startOf(input: number): string {
    const column = this.#layout.strides[input] === "none" ? "" : " + position";
    return `(long long)(int)row * stride${input}${column}`;
  }

  #leaves(): Leaves {
    const text = this.#text;
    const { strides } = this.#layout;
    return {
      load: ({ input }, at) => {
        const dtype = this.#kernel.inputs[input] ?? "f32";
        const isInvariant = strides[input] === "none";
        if (at !== undefined)
          return widened(
            text,
            dtype,
            `in${input}[${this.#startOf(input)}${isInvariant ? "" : " + k"} + ${at}]`,
          );
        return isInvariant ? `invariant${input}` : widened(text, dtype, `vec${input}.element[k]`);
      },
      scalar: (index) => `scalar${index}`,
      reduced: () => "",
      position: () => "(int)(position + k)",
      row: () => "(int)row",
    };
  }

  /** Combines a thread's partials, then those of the threads of a column through shared memory; returns how many doubles that takes. */
  #printCombines(): number {
    const text = this.#text;
    const { width } = this.#layout;
    let doubles = 0;
    for (const { value, real, partials, shared } of this.#reductions) {
      for (let half = this.#threadPartials / 2; half >= 1; half /= 2) {
        this.#unrollLanes("partial", half, () => {
          const [left, right] = [
            `${partials}[partial].element[k]`,
            `${partials}[partial + ${half}u].element[k]`,
          ];
          text.line(`${left} = ${binary(text, this.#kernel.op, value.type, left, right)};`);
        });
      }
      text.line(`${real}* const ${shared} = reinterpret_cast<${real}*>(memory + ${doubles});`);
      const address = `${shared} + group * ${this.#columns}u + lane * ${width}u`;
      text.line(`${text.call("storeVec", address, `${partials}[0]`)};`);
      // A multiple of 16 bytes, because a block has 256 threads.
      doubles += (splitThreads * width * dtypes[value.type].bytes) / dtypes.f64.bytes;
    }
    text.line("__syncthreads();");
    text.define("const unsigned", "column", `columnBlock * ${this.#columns}u + threadIdx.x`);
    text.line(`if (threadIdx.x >= ${this.#columns}u || column >= columns) return;`);
    for (const [index, reduction] of this.#reductions.entries()) {
      const combined = `combined${index}`;
      text.line(`${reduction.real} ${combined}[${this.#groups}];`);
      text.unrolled("partial", this.#groups, () => {
        text.line(`${combined}[partial] = ${reduction.shared}[partial * ${this.#columns}u + threadIdx.x];`);
      });
      combineHalves(text, this.#kernel.op, reduction.value.type, combined, this.#groups);
      this.#printStore(reduction, index, `${combined}[0]`);
    }
    return doubles;
  }

  #printStore({ real, dtype, output }: Reduction, index: number, total: string): void {
    const text = this.#text;
    if (!this.#isSplit) {
      text.line(
        `${output}[${outputIndex(this.#kernel.outputLayout, "column")}] = ${narrowed(text, dtype, total)};`,
      );
      return;
    }
    text.line(`${real}* const splitPartials${index} = ${atUnit(real, `unit${index}`)};`);
    text.line(`splitPartials${index}[(long long)split * columns + column] = ${total};`);
  }
}

function atUnit(real: string, unit: string): string {
  return `reinterpret_cast<${real}*>(scratch + (long long)${unit} * ${unitBytes})`;
}

/** The second phase of one value of a kernel. */
export interface ColumnCombine {
  readonly op: ReduceOp;
  readonly type: Compute;
  readonly dtype: Dtype;
  readonly outputLayout?: OutputLayout | undefined;
  /** Partials of a column. */
  readonly splits: number;
}

/**
 * The second phase. Parameters: the output, the scratch memory, the unit of the value's partials in it, and the columns as u32. Partials
 * that are equal mod `combineLanes` are combined first, each set by one thread.
 */
export function printColumnCombine(
  { op, type, dtype, outputLayout, splits }: ColumnCombine,
  name: string,
): BlockFunction {
  const text = new KernelText();
  text.pointer("inout", elementTypes[dtype].type, "out");
  text.pointer("in", "unsigned char", "scratch");
  text.scalar("u32", "unit");
  text.scalar("u32", "columns");
  const real = computeTypes[type];
  text.line(`const unsigned threadColumn = block * ${combineColumns}u + threadIdx.x / ${combineLanes}u;`);
  // Threads beyond the last column repeat it, because neighbours take part in the shuffles.
  text.line("const unsigned column = threadColumn < columns ? threadColumn : columns - 1u;");
  text.line(`const ${real}* const splitPartials = ${atUnit(`const ${real}`, "unit")};`);
  text.line(`${real} partials[${splits / combineLanes}];`);
  text.unrolled("partial", splits / combineLanes, () => {
    const split = `partial * ${combineLanes}u + threadIdx.x % ${combineLanes}u`;
    text.line(`partials[partial] = splitPartials[(long long)(${split}) * columns + column];`);
  });
  combineHalves(text, op, type, "partials", splits / combineLanes);
  for (let distance = combineLanes / 2; distance >= 1; distance /= 2) {
    const other = `__shfl_xor_sync(0xffffffffu, partials[0], ${distance})`;
    text.line(`partials[0] = ${binary(text, op, type, "partials[0]", other)};`);
  }
  text.line(`if (threadColumn >= columns || threadIdx.x % ${combineLanes}u != 0u) return;`);
  text.line(`out[${outputIndex(outputLayout, "column")}] = ${narrowed(text, dtype, "partials[0]")};`);
  return {
    ...text.toFunction(name, ["const unsigned block"]),
    sharedDoubles: 0,
    leadingArguments: ["block"],
  };
}
