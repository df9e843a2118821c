/**
 * Prints column kernels in two steps, as functions of kernels that run several. Of a column's 1024 partial results, joined in halves,
 * the first five joins are of such whose numbers have the same remainder by 32: so a block takes every 32nd row, for neighbouring
 * columns, makes and joins the 32 partial results that these rows have, and leaves one of them. A second kernel joins what 32
 * blocks have left of a column.
 *
 * With fewer rows a column has fewer partial results, and one block makes and joins all of them: that needs no second step.
 * The order of operations is that of `printColumnKernel`, and so are the bits.
 */

import type { ColumnKernel, ColumnPlaces, Compute, ReduceOp } from "../../../ir/index.js";
import { checkColumnKernel, type Dtype, dtypes, identityOf } from "../../../ir/index.js";
import type { ColumnStride } from "../../launch-config.js";
import { type BeginRow, combineHalves, printStrides, type Reduction, targetOf } from "./column-kernel.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, expressionPrinter, type Leaves, literal } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { narrowed, widened } from "./row-operands.js";

/** Threads of a block, in either step. */
export const stepThreads = 256;
/** How many of them share a column in the second step, neighbours; and so how many columns a block joins. */
const flattenSpans = 4;
export const combineColumns = stepThreads / flattenSpans;
/** How many blocks share a column of many rows; and what they leave of it, as floats: in such units memory is given to them. */
export const sharedBy = 32;
export const unitBytes = sharedBy * dtypes.f32.bytes;

/** All numbers are powers of two, but for the turns. */
export interface StepLayout {
  readonly strides: readonly ColumnStride[];
  /** How many blocks share the rows of a column, each having every so many-th: 1, or as many as leave a second step to do. */
  readonly sets: number;
  /** Partial results that a block makes of a column. */
  readonly parts: number;
  /** Threads side by side, and neighbouring columns of each; the block's other threads have other rows. */
  readonly lanes: number;
  readonly width: number;
  /** How many rows of each partial result are read before the first of them is needed. */
  readonly turns: number;
}

/** How many of them a thread makes of each of its columns. */
export function cachedPartials({ parts, lanes }: Pick<StepLayout, "parts" | "lanes">): number {
  return (parts * lanes) / stepThreads;
}

/**
 * Its own parameters: the inputs; the outputs or, where others have a share in the columns, the scratch memory, and where in it
 * what is left of each value goes, in units; rows and columns as u32, each input's row stride; then the kernel's scalars.
 */
export function printColumnStep(kernel: ColumnKernel, layout: StepLayout, name: string): BlockFunction {
  checkColumnKernel(kernel);
  return new Printer(kernel, layout).print(name);
}

class Printer {
  readonly #kernel: ColumnKernel;
  readonly #layout: StepLayout;
  readonly #text = new KernelText();
  readonly #reductions: readonly Reduction[];
  /** Threads that share a column; each has as many of its partial results. */
  readonly #groups: number;
  readonly #held: number;
  /** Columns of a block. */
  readonly #columns: number;

  constructor(kernel: ColumnKernel, layout: StepLayout) {
    this.#kernel = kernel;
    this.#layout = layout;
    this.#groups = stepThreads / layout.lanes;
    this.#held = cachedPartials(layout);
    this.#columns = layout.lanes * layout.width;
    const text = this.#text;
    const { inputs, outputs, scalars, values } = kernel;
    for (const [index, dtype] of inputs.entries()) text.pointer("in", elementTypes[dtype].type, `in${index}`);
    if (this.#isShared) text.pointer("partial-out", "unsigned char", "scratch");
    this.#reductions = values.map((value, index) => {
      const dtype = outputs[index] ?? "f32";
      const output = `out${index}`;
      if (this.#isShared) text.scalar("u32", `unit${index}`);
      else text.pointer("inout", elementTypes[dtype].type, output);
      const real = computeTypes[value.type];
      return { value, dtype, real, sums: `sums${index}`, shared: `shared${index}`, output };
    });
    text.scalar("u32", "rows");
    text.scalar("u32", "columns");
    for (const index of inputs.keys()) text.scalar("i32", `step${index}`);
    for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);
  }

  /** Does it leave partial results? */
  get #isShared(): boolean {
    return this.#layout.sets > 1;
  }

  print(name: string): BlockFunction {
    const text = this.#text;
    const { lanes, width } = this.#layout;
    text.line(`const unsigned lane = threadIdx.x % ${lanes}u;`);
    text.line(`const unsigned group = threadIdx.x / ${lanes}u;`);
    if (this.#isShared) {
      // Blocks that follow each other read neighbouring columns, then the next row's.
      text.line(`const unsigned runs = (columns + ${this.#columns - 1}u) / ${this.#columns}u;`);
      text.line("const unsigned run = block % runs;");
      text.line("const unsigned set = block / runs;");
    } else text.line("const unsigned run = block;");
    text.define("const unsigned", "near", `(run * ${lanes}u + lane) * ${width}u`);
    // Threads with no columns go along with the last ones, since all of a block join their results.
    text.define("const unsigned", "position", `near < columns ? near : columns - ${width}u`);
    text.line(`const unsigned whole = rows - rows % ${this.#stride}u;`);
    for (const { value, real, sums } of this.#reductions) {
      text.line(`${text.use("Vec")}<${real}, ${width}> ${sums}[${this.#held}];`);
      this.#unrollLanes("part", this.#held, () => {
        const identity = literal(value.type, identityOf(this.#kernel.op, value.type));
        text.line(`${sums}[part].lane[k] = ${identity};`);
      });
    }
    printStrides(text, this.#stride, (beginRow) => this.#printStride(beginRow));
    const doubles = this.#printCombines();
    const before = ["const unsigned block", "double* const memory"];
    return {
      ...text.epilogueFunction(name, before),
      sharedDoubles: doubles,
      before: ["block", "memory"],
    };
  }

  get #stride(): number {
    return this.#layout.parts * this.#layout.sets * this.#layout.turns;
  }

  #unrollLanes(counter: string, count: number, body: () => void): void {
    this.#text.unrolled(counter, count, () => this.#text.unrolled("k", this.#layout.width, body));
  }

  #join({ value }: Reduction, a: string, b: string): string {
    return binary(this.#text, this.#kernel.op, value.type, a, b);
  }

  #printStride(beginRow: BeginRow): void {
    const text = this.#text;
    const { sets, turns, width } = this.#layout;
    text.unrolled("part", this.#held * turns, () => {
      const place = `part * ${this.#groups}u + group`;
      const resultOf = beginRow(this.#isShared ? `(${place}) * ${sets}u + set` : place);
      this.#printLoads();
      text.unrolled("k", width, () => {
        const print = expressionPrinter(text, this.#kernel.values, this.#leaves());
        for (const reduction of this.#reductions) {
          const sum = `${reduction.sums}[part % ${this.#held}u].lane[k]`;
          const joined = text.keep(reduction.real, this.#join(reduction, sum, print(reduction.value)));
          text.line(`${sum} = ${resultOf(sum, joined)};`);
        }
      });
    });
  }

  /** What of the row the thread's columns need: neighbouring elements at once, and one element that is for all of them. */
  #printLoads(): void {
    const text = this.#text;
    const { strides, width } = this.#layout;
    for (const [index, dtype] of this.#kernel.inputs.entries()) {
      const start = this.#startOf(index);
      if (strides[index] === "none")
        text.define("const auto", `fixed${index}`, widened(text, dtype, `in${index}[${start}]`));
      else text.define("const auto", `pack${index}`, `${text.use("load")}<${width}>(in${index} + ${start})`);
    }
  }

  /** Where the row's first element lies, or the thread's first. */
  #startOf(input: number): string {
    const column = this.#layout.strides[input] === "none" ? "" : " + position";
    return `(long long)(int)row * step${input}${column}`;
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
        return isInvariant ? `fixed${input}` : widened(text, dtype, `pack${input}.lane[k]`);
      },
      scalar: (index) => `scalar${index}`,
      reduced: () => "",
      position: () => "(int)(position + k)",
      row: () => "(int)row",
    };
  }

  /** Joins a thread's results, then those of threads that share columns, through shared memory; tells how much of it. */
  #printCombines(): number {
    const text = this.#text;
    const { width } = this.#layout;
    let doubles = 0;
    for (const { value, real, sums, shared } of this.#reductions) {
      for (let half = this.#held / 2; half >= 1; half /= 2) {
        this.#unrollLanes("part", half, () => {
          const [one, other] = [`${sums}[part].lane[k]`, `${sums}[part + ${half}u].lane[k]`];
          text.line(`${one} = ${binary(text, this.#kernel.op, value.type, one, other)};`);
        });
      }
      text.line(`${real}* const ${shared} = reinterpret_cast<${real}*>(memory + ${doubles});`);
      const place = `${shared} + group * ${this.#columns}u + lane * ${width}u`;
      text.line(`${text.call("store", place, `${sums}[0]`)};`);
      // A multiple of 16 bytes, as a block has 256 threads.
      doubles += (stepThreads * width * dtypes[value.type].bytes) / dtypes.f64.bytes;
    }
    text.line("__syncthreads();");
    text.define("const unsigned", "column", `run * ${this.#columns}u + threadIdx.x`);
    text.line(`if (threadIdx.x >= ${this.#columns}u || column >= columns) return;`);
    for (const [index, reduction] of this.#reductions.entries()) {
      const joined = `joined${index}`;
      text.line(`${reduction.real} ${joined}[${this.#groups}];`);
      text.unrolled("part", this.#groups, () => {
        text.line(`${joined}[part] = ${reduction.shared}[part * ${this.#columns}u + threadIdx.x];`);
      });
      combineHalves(text, this.#kernel.op, reduction.value.type, joined, this.#groups);
      this.#printStore(reduction, index, `${joined}[0]`);
    }
    return doubles;
  }

  #printStore({ real, dtype, output }: Reduction, index: number, total: string): void {
    const text = this.#text;
    if (!this.#isShared) {
      text.line(`${output}[${targetOf(this.#kernel.places, "column")}] = ${narrowed(text, dtype, total)};`);
      return;
    }
    text.line(`${real}* const left${index} = ${atUnit(real, `unit${index}`)};`);
    text.line(`left${index}[(long long)set * columns + column] = ${total};`);
  }
}

function atUnit(real: string, unit: string): string {
  return `reinterpret_cast<${real}*>(scratch + (long long)${unit} * ${unitBytes})`;
}

/** What the second step does with one value of a kernel. */
export interface ColumnCombine {
  readonly op: ReduceOp;
  readonly type: Compute;
  readonly dtype: Dtype;
  readonly places?: ColumnPlaces | undefined;
}

/**
 * Its own parameters: the output, the scratch memory, where in it the value's partial results are, in units, and the columns as u32.
 * Joins of partial results whose numbers have the same remainder by `flattenSpans` come first: each thread makes those of one.
 */
export function printColumnCombine({ op, type, dtype, places }: ColumnCombine, name: string): BlockFunction {
  const text = new KernelText();
  text.pointer("inout", elementTypes[dtype].type, "out");
  text.pointer("in", "unsigned char", "scratch");
  text.scalar("u32", "unit");
  text.scalar("u32", "columns");
  const real = computeTypes[type];
  text.line(`const unsigned near = block * ${combineColumns}u + threadIdx.x / ${flattenSpans}u;`);
  // Threads with no column go along with the last one, since neighbours join their results.
  text.line("const unsigned column = near < columns ? near : columns - 1u;");
  text.line(`const ${real}* const left = ${atUnit(`const ${real}`, "unit")};`);
  text.line(`${real} parts[${sharedBy / flattenSpans}];`);
  text.unrolled("part", sharedBy / flattenSpans, () => {
    const number = `part * ${flattenSpans}u + threadIdx.x % ${flattenSpans}u`;
    text.line(`parts[part] = left[(long long)(${number}) * columns + column];`);
  });
  combineHalves(text, op, type, "parts", sharedBy / flattenSpans);
  for (let distance = flattenSpans / 2; distance >= 1; distance /= 2) {
    const other = `__shfl_xor_sync(0xffffffffu, parts[0], ${distance})`;
    text.line(`parts[0] = ${binary(text, op, type, "parts[0]", other)};`);
  }
  text.line(`if (near >= columns || threadIdx.x % ${flattenSpans}u != 0u) return;`);
  text.line(`out[${targetOf(places, "column")}] = ${narrowed(text, dtype, "parts[0]")};`);
  return { ...text.epilogueFunction(name, ["const unsigned block"]), sharedDoubles: 0, before: ["block"] };
}
