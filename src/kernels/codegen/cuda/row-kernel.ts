/**
 * Prints a row kernel that reduces as CUDA C++. Some neighbouring threads share a row: a few lanes of a warp, a warp, or a
 * block, by the row's length alone. Each takes every so many-th pack of four elements, adds up the four places apart, and
 * the threads' results are joined in a fixed order, so that a row's bits follow from its length, not from where its
 * memory lies or what runs beside it.
 *
 * Rows that are not too long are held: each input is read once, and its packs stay in registers for all stages.
 * Reductions that don't wait for each other go through the row together, and are joined together.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { Expression, RowKernel, Stage } from "../../../ir/index.js";
import { checkRowKernel, factsOf, identityOf, loadsOf, subexpressionsOf } from "../../../ir/index.js";
import {
  addUpColumns,
  type ColumnPartialsLayout,
  colsumOutputs,
  colsumRow,
  declareAccumulators,
  indexInAccumulators,
} from "./column-partials.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { computeTypes } from "./element-types.js";
import { binary, literal, printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { narrowed, type Operand, type RowLayout, RowOperands } from "./row-operands.js";
import {
  forEachLane,
  type InvariantPrinter,
  invariantPrinter,
  keepInvariants,
  leavesAtStart,
  loadedVector,
  placeOf,
  type Surroundings,
  storeValues,
  vectorsReadBy,
  vectorType,
} from "./vectors.js";

/** Threads of a block whose rows take a warp or less each. */
const warpRowThreads = 128;
const warp = 32;

/**
 * Rows wait for each other's joins, so that a multiprocessor had better have many: so many blocks, where what a thread holds takes no
 * more than two thirds of the registers that this leaves it.
 */
const manyBlocks = 6;
const fewHeldBytes = 224;

export interface ReducingLayout extends RowLayout {
  readonly moves: "whole" | "single";
  /** Threads of a row: a power of two. */
  readonly lanes: number;
  /** How many packs of a row a thread holds; 0 where it reads them anew in every stage. */
  readonly packs: number;
  /** What it holds of the row's inputs. */
  readonly heldBytes: number;
  /** How columns are added up, where they are. */
  readonly sums?: ColumnPartialsLayout;
}

/** `threads`: how many a block has whose rows take a warp or less each. */
export function rowsPerBlock(lanes: number, threads = warpRowThreads): number {
  return Math.max(1, threads / lanes);
}

/** The counts are rows and elements of a row. */
export function printReducingKernel(kernel: RowKernel, layout: ReducingLayout): KernelSource {
  const { threads, blocksAtOnce, sharedBytes } = blockOf(layout);
  return new Printer(kernel, layout, threads, "blockIdx.x")
    .print()
    .finish(kernel.name, threads, blocksAtOnce, sharedBytes);
}

/** Threads of a block, and how many blocks a multiprocessor is to have room for. */
function blockOf({ lanes, heldBytes, sums }: ReducingLayout): {
  readonly threads: number;
  readonly blocksAtOnce?: number;
  readonly sharedBytes?: number;
} {
  if (sums) return { threads: sums.threads, blocksAtOnce: 1, sharedBytes: sums.sharedBytes };
  if (lanes > warp) return { threads: lanes };
  return { threads: warpRowThreads, ...(heldBytes <= fewHeldBytes && { blocksAtOnce: manyBlocks }) };
}

/** Can a function of blocks with so many threads do it? Those of a row are a warp or less, or all of a block. */
export function isReducedBy(threads: number, lanes: number): boolean {
  return lanes <= warp || lanes === threads;
}

/** The same as a function of blocks with so many threads, where `isReducedBy` says so. */
export function printReducingFunction(
  kernel: RowKernel,
  layout: ReducingLayout,
  threads: number,
  name: string,
): BlockFunction {
  const text = new Printer(kernel, layout, threads, "block").print();
  return { ...text.epilogueFunction(name, ["const unsigned block"]), before: ["block"], sharedDoubles: 0 };
}

/** A stage that reduces, and the names of what it has in the printed code. */
interface Reduction extends Extract<Stage, { kind: "reduce" }> {
  readonly place: number;
  readonly real: string;
  readonly sums: string;
  readonly total: string;
  readonly shared: string;
  join(a: string, b: string): string;
}

/** An input, or several whose elements take turns in memory; the operand is the first one. */
interface Threads {
  readonly inputs: readonly number[];
  readonly operand: Operand;
}

class Printer {
  readonly #kernel: RowKernel;
  readonly #layout: ReducingLayout;
  readonly #threads: number;
  /** The block's number, as text. */
  readonly #block: string;
  readonly #text = new KernelText();
  readonly #operands: RowOperands;
  readonly #around: Surroundings;
  readonly #reduced = new Map<number, string>();
  /** Prints what is computed once for a row, of all stages. */
  readonly #printInvariant: InvariantPrinter;
  /** The held packs of inputs, as text: good until something is stored. */
  readonly #held = new Map<number, string>();

  constructor(kernel: RowKernel, layout: ReducingLayout, threads: number, block: string) {
    checkRowKernel(kernel);
    this.#threads = threads;
    this.#block = block;
    this.#kernel = kernel;
    this.#layout = layout;
    this.#operands = new RowOperands(this.#text, kernel, layout, ["rows", "columns"]);
    this.#around = {
      text: this.#text,
      operands: this.#operands,
      shape: { width: 4, moves: layout.moves },
      row: "(int)row",
      reduced: this.#reduced,
    };
    this.#printInvariant = invariantPrinter(this.#around, kernel.stages);
  }

  print(): KernelText {
    const { stages } = this.#kernel;
    const { sums } = this.#layout;
    const summed = colsumOutputs(this.#kernel);
    if (sums) declareAccumulators(this.#text, sums);
    this.#printPlace();
    const atFirst = this.#layout.packs > 0 ? this.#readAtFirst() : [];
    const { early } = this.#layout;
    if (early) {
      this.#hold(atFirst.filter(([input]) => early[input]));
      this.#text.line(`${this.#text.call("gridDependencyWait")};`);
    }
    this.#operands.loadInvariant();
    this.#hold(atFirst);
    for (const [index, stage] of stages.entries()) {
      if (stage.kind === "reduce") {
        if (!this.#reduced.has(index)) this.#printReductions(this.#reductionsFrom(index));
      } else if (summed.includes(stage.output)) this.#passOn(summed.indexOf(stage.output), stage.value);
      else {
        // Other threads may have yet to read what this one is about to store over.
        if (this.#operands.fixed.size > 0 || this.#readsAtIndex) this.#wait();
        this.#printStore(stage.output, stage.value);
        if (this.#isReadAcross(stages.slice(index + 1))) this.#wait();
        for (const [input, alias] of this.#layout.aliases) if (alias === "mixed") this.#held.delete(input);
      }
    }
    if (sums) addUpColumns(this.#text, sums, summed);
    return this.#text;
  }

  /** The moving inputs that nothing has stored over when they are read. */
  #readAtFirst(): [number, Operand][] {
    const read = this.#kernel.stages
      .filter((stage) => !this.#isPerRow(stage))
      .flatMap(({ value }) => vectorsReadBy(this.#around, value));
    const { aliases } = this.#layout;
    return [...new Map(read)].filter(([input]) => (aliases.get(input) ?? "apart") === "apart");
  }

  /** Do stages read what another thread may have stored? In its own place a thread has stored it itself. */
  #isReadAcross(stages: readonly Stage[]): boolean {
    const reads = stages.flatMap(({ value }) => loadsOf(value));
    return reads.some(({ input, at }) => at !== undefined || this.#layout.aliases.get(input) === "mixed");
  }

  #isPerRow(stage: Stage): boolean {
    return stage.kind === "store" && this.#kernel.outputs[stage.output]?.per === "row";
  }

  /** Warps leave what they have of their rows where others add it up. */
  #passOn(place: number, value: Expression): void {
    const text = this.#text;
    this.#forEachVector([value], (packs, known) => {
      const pack = text.freshName();
      text.line(`Vec<float, 4> ${pack};`);
      forEachLane(this.#around, value, packs, known, (computed, lane) => {
        text.line(`${pack}.lane[${lane}] = ${computed};`);
      });
      text.line(`${text.call("store", indexInAccumulators(place), pack)};`);
    });
  }

  get #readsAtIndex(): boolean {
    return factsOf(this.#kernel).readsAtIndex;
  }

  /** Waits for the other threads of the row, and sees what they have stored. */
  #wait(): void {
    this.#text.line(this.#isWarp ? "__syncwarp();" : "__syncthreads();");
  }

  get #isWarp(): boolean {
    return this.#layout.lanes <= warp;
  }

  #printPlace(): void {
    const text = this.#text;
    const { lanes, sums } = this.#layout;
    if (this.#isWarp) {
      text.define("const unsigned", "lane", `threadIdx.x % ${lanes}u`);
      const first = `${this.#block} * ${rowsPerBlock(lanes, this.#threads)}u`;
      text.define("const unsigned", "own", sums ? colsumRow : `${first} + threadIdx.x / ${lanes}u`);
      // Threads with no row stay to the end, since the others join their results with all of the warp.
      text.define("const bool", "isInside", "own < rows");
      text.define("const unsigned", "row", "isInside ? own : rows - 1u");
      text.define("const unsigned", "count", "isInside ? columns : 0u");
    } else {
      text.define("const unsigned", "lane", "threadIdx.x");
      text.define("const unsigned", "row", this.#block);
      text.define("const unsigned", "count", "columns");
    }
    this.#operands.place("row");
  }

  #printStore(outputIndex: number, value: Expression): void {
    const text = this.#text;
    const output = this.#operands.outputs[outputIndex];
    if (!output) return;
    if (this.#kernel.outputs[outputIndex]?.per === "row") {
      const known = keepInvariants(this.#around, value, this.#printInvariant);
      text.block(this.#isWarp ? "if (isInside && lane == 0u)" : "if (lane == 0u)", () => {
        const computed = printExpression(text, value, leavesAtStart(this.#around), known);
        this.#operands.placeOutput(outputIndex);
        text.line(`${output.start}[0] = ${narrowed(text, output.dtype, computed)};`);
      });
      return;
    }
    const { aliases, packs: held } = this.#layout;
    const lyingHere = [...aliases].filter(([, alias]) => alias === outputIndex).map(([input]) => input);
    const isKept = held > 0 && lyingHere.length > 0;
    const stored = isKept ? text.freshName() : "";
    if (isKept) text.line(`${vectorType(this.#around, output)} ${stored}[${held}];`);
    this.#forEachVector([value], (packs, known) => {
      const pack = storeValues(this.#around, output, value, packs, known);
      if (isKept) text.line(`${stored}[pack] = ${pack};`);
    });
    // Who reads what was just stored has it at hand.
    for (const input of lyingHere) {
      if (isKept) this.#held.set(input, `${stored}[pack]`);
      else this.#held.delete(input);
    }
  }

  /** The reductions from one on, as far as none needs what another one of them gives: they go through the row together. */
  #reductionsFrom(first: number): readonly Reduction[] {
    const found: Reduction[] = [];
    for (const [index, stage] of this.#kernel.stages.entries()) {
      if (index < first) continue;
      const isApart =
        stage.kind === "reduce" &&
        subexpressionsOf(stage.value).every((part) => part.kind !== "reduced" || part.stage < first);
      if (!isApart) break;
      const { type } = stage.value;
      const join: Reduction["join"] = (a, b) => binary(this.#text, stage.op, type, a, b);
      const names = { sums: `sums${index}`, total: `total${index}`, shared: `shared${index}` };
      found.push({ ...stage, ...names, place: index, real: computeTypes[type], join });
    }
    return found;
  }

  #printReductions(reductions: readonly Reduction[]): void {
    const text = this.#text;
    for (const { op, value, real, sums } of reductions) {
      const identity = literal(value.type, identityOf(op, value.type));
      text.line(`${real} ${sums}[4] = {${Array(4).fill(identity).join(", ")}};`);
    }
    this.#forEachVector(
      reductions.map(({ value }) => value),
      (packs, known) => {
        for (const { value, sums, join } of reductions) {
          forEachLane(this.#around, value, packs, known, (computed, lane) => {
            text.line(`${sums}[${lane}] = ${join(`${sums}[${lane}]`, computed)};`);
          });
        }
      },
    );
    for (const { real, sums, total, join } of reductions) {
      const [first, second] = [join(`${sums}[0]`, `${sums}[1]`), join(`${sums}[2]`, `${sums}[3]`)];
      text.line(`${real} ${total} = ${join(first, second)};`);
    }
    this.#flattenSpans(Math.min(warp, this.#layout.lanes), reductions);
    if (!this.#isWarp) this.#reduceWarps(reductions);
    for (const { place, total } of reductions) this.#reduced.set(place, total);
  }

  /** Joins values over neighbouring lanes, so that all of them have the results. */
  #flattenSpans(lanes: number, reductions: readonly Reduction[]): void {
    for (let distance = lanes / 2; distance >= 1; distance /= 2) {
      for (const { total, join } of reductions) {
        const other = `__shfl_xor_sync(0xffffffffu, ${total}, ${distance})`;
        this.#text.line(`${total} = ${join(total, other)};`);
      }
    }
  }

  #reduceWarps(reductions: readonly Reduction[]): void {
    const text = this.#text;
    const warps = this.#layout.lanes / warp;
    for (const { real, shared, total } of reductions) {
      text.line(`__shared__ ${real} ${shared}[${warps}];`);
      text.line(`if (lane % ${warp}u == 0u) ${shared}[lane / ${warp}u] = ${total};`);
    }
    text.line("__syncthreads();");
    for (const { shared, total } of reductions) text.line(`${total} = ${shared}[lane % ${warps}u];`);
    this.#flattenSpans(warps, reductions);
  }

  /** Runs the body over a thread's packs of the row, with those of the inputs that the values read. */
  #forEachVector(
    values: readonly Expression[],
    body: (packs: ReadonlyMap<number, string>, known: ReadonlyMap<Expression, string>) => void,
  ): void {
    const read = [...new Map(values.flatMap((value) => vectorsReadBy(this.#around, value)))];
    if (this.#layout.packs > 0) this.#hold(read);
    const known = new Map(
      values.flatMap((value) => [...keepInvariants(this.#around, value, this.#printInvariant)]),
    );
    this.#loopOverVectors(() => {
      if (this.#layout.packs > 0) body(this.#held, known);
      else {
        const packs = new Map<number, string>();
        for (const threads of this.#threadsOf(read)) this.#load(threads, this.#declare(threads, "", packs));
        body(packs, known);
      }
    });
  }

  /** Reads all packs of the inputs that are not held yet: all at once, so that they are on their way together. */
  #hold(read: readonly [number, Operand][]): void {
    const missing = read.filter(([input]) => !this.#held.has(input));
    if (missing.length === 0) return;
    const arrays = this.#threadsOf(missing).map((threads): [Threads, string] => [
      threads,
      this.#declare(threads, `[${this.#layout.packs}]`, this.#held),
    ]);
    this.#loopOverVectors(() => {
      for (const [threads, name] of arrays) this.#load(threads, `${name}[pack]`);
    });
  }

  /** Inputs as they are read: those that are woven together at once, if all of them are wanted. */
  #threadsOf(read: readonly [number, Operand][]): readonly Threads[] {
    const { interleaved = [] } = this.#layout;
    const isRead = (input: number): boolean => read.some(([one]) => one === input);
    const together = interleaved.filter((inputs) => inputs.every(isRead));
    return read.flatMap(([input, operand]): Threads[] => {
      const inputs = together.find((one) => one.includes(input)) ?? [input];
      return inputs[0] === input ? [{ inputs, operand }] : [];
    });
  }

  /** Declares what some inputs are read into, tells of each where its pack will be, and returns its name. */
  #declare({ inputs, operand }: Threads, length: string, packs: Map<number, string>): string {
    const text = this.#text;
    const name = text.freshName();
    const isInterleaved = inputs.length > 1;
    text.line(
      `${vectorType(this.#around, operand)} ${name}${length}${isInterleaved ? `[${inputs.length}]` : ""};`,
    );
    for (const [index, input] of inputs.entries()) {
      packs.set(input, `${name}${length && "[pack]"}${isInterleaved ? `[${index}]` : ""}`);
    }
    return name;
  }

  #load({ inputs, operand }: Threads, into: string): void {
    const text = this.#text;
    if (inputs.length > 1) text.line(`${text.call("loadInterleaved", placeOf(operand), into)};`);
    else text.line(`${into} = ${loadedVector(this.#around, operand)};`);
  }

  #loopOverVectors(body: () => void): void {
    const text = this.#text;
    const { lanes, packs, moves } = this.#layout;
    const inside = (): void => {
      if (moves === "single") text.line("const unsigned left = count - position;");
      body();
    };
    if (packs === 0) {
      // Several packs on their way at a time: each comes from far.
      text.line("#pragma unroll 4");
      const stride = 4 * lanes;
      text.block(`for (unsigned position = lane * 4u; position < count; position += ${stride}u)`, inside);
      return;
    }
    text.unrolled("pack", packs, () => {
      text.line(`const unsigned position = (pack * ${lanes}u + lane) * 4u;`);
      text.block("if (position < count)", inside);
    });
  }
}
