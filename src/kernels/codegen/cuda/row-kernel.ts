/**
 * Prints row kernels with reductions as CUDA C++. A few lanes of a warp, a warp, or a block share a row, depending on the row's length
 * alone. Each thread takes every n-th vector of four elements and has an accumulator for each of the four. The threads' results are
 * combined in a fixed order (warp-reduce butterfly). So the bits of a row follow from its length, not from its address or the grid.
 *
 * If the row fits, each input is loaded once and its vectors stay in registers for all stages. Of longer rows, a block keeps the first
 * vectors in shared memory. Independent reductions share one pass over the row and one butterfly.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { Expression, RowKernel, Stage } from "../../../ir/index.js";
import { checkRowKernel, factsOf, loadsOf } from "../../../ir/index.js";
import { maxThreadsPerBlock, registerBytes, registerBytesPerThread, warpSize } from "../../cost-model.js";
import {
  accumulate,
  colsumOutputs,
  declareAccumulators,
  declareSharedRows,
  firstRowOf,
  loopOverRows,
  reduceColumns,
  rowStepOf,
  sharedRowAddress,
  storeAccumulators,
  teamBarrier,
} from "./column-partials.js";
import type { ColumnSumLayout } from "./column-sum-layout.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { positionMatchIn } from "./position-match.js";
import { narrowed, type Operand, RowOperands } from "./row-operands.js";
import { RowReductions } from "./row-reductions.js";
import { type ReducingLayout, RowVectors } from "./row-vectors.js";
import {
  forEachElement,
  type InvariantPrinter,
  invariantPrinter,
  keepInvariants,
  leavesAtStart,
  type StageContext,
  storeValues,
  vectorsReadBy,
  vectorType,
} from "./vectors.js";

/** Threads of a block whose rows take at most a warp each. */
const warpRowThreads = 128;
/**
 * Warps wait for their butterflies, so occupancy matters: six blocks per SM, if a thread's cached vectors take at most two thirds of the
 * registers that this leaves (56 of 85). Measured by `bench/gpu/compiled.ts`.
 */
const residentBlocks = 6;
const maxCachedBytesForOccupancy =
  registerBytes *
  Math.floor((2 / 3) * (registerBytesPerThread(warpRowThreads, residentBlocks) / registerBytes));

type StoreStage = Extract<Stage, { kind: "store" }>;

/** `threads`: those of a block whose rows take at most a warp each. */
export function rowsPerBlock(lanes: number, threads = warpRowThreads): number {
  return Math.max(1, threads / lanes);
}

/** The counts are the rows and the elements of a row. */
export function printReducingKernel(kernel: RowKernel, layout: ReducingLayout): KernelSource {
  const { threads, blocksPerSm, sharedBytes } = blockOf(layout);
  return new Printer(kernel, layout, threads, "blockIdx.x")
    .print()
    .toKernel(kernel.name, threads, blocksPerSm, sharedBytes);
}

/** The launch bounds and the dynamic shared memory of a block. */
function blockOf({ lanes, cachedBytes, colsums, shared }: ReducingLayout): {
  readonly threads: number;
  readonly blocksPerSm?: number;
  readonly sharedBytes?: number;
} {
  if (colsums) {
    const { threads, blocksPerSm, sharedBytes } = colsums;
    return { threads, blocksPerSm, ...(sharedBytes > 0 && { sharedBytes }) };
  }
  if (lanes > warpSize) {
    if (!shared) return { threads: lanes };
    // Shared memory is for all resident blocks, of which one loads while the other stores: the registers have to suffice for them.
    const bounds = lanes === maxThreadsPerBlock ? { blocksPerSm: shared.residentBlocks } : {};
    return { threads: lanes, ...bounds, sharedBytes: shared.bytes };
  }
  const isSmall = cachedBytes <= maxCachedBytesForOccupancy;
  return { threads: warpRowThreads, ...(isSmall && { blocksPerSm: residentBlocks }) };
}

/** True if a block can reduce rows that have `lanes` threads each: at most a warp, or the whole block. */
export function canReduceWith(threads: number, lanes: number): boolean {
  return lanes <= warpSize || lanes === threads;
}

/**
 * The same as a device function for blocks of so many threads, if `canReduceWith` allows it. If outputs are stored under the condition
 * `storesAll`, that is its second argument.
 */
export function printReducingFunction(
  kernel: RowKernel,
  layout: ReducingLayout,
  threads: number,
  name: string,
): BlockFunction {
  const text = new Printer(kernel, layout, threads, "block").print();
  const condition = layout.storedIf ? ["storesAll"] : [];
  return {
    ...text.toFunction(name, ["const unsigned block", ...condition.map((one) => `const bool ${one}`)]),
    leadingArguments: ["block", ...condition],
    sharedDoubles: 0,
  };
}

class Printer {
  readonly #kernel: RowKernel;
  readonly #layout: ReducingLayout;
  readonly #threads: number;
  /** The expression of the block's index. */
  readonly #block: string;
  readonly #text: KernelText;
  readonly #operands: RowOperands;
  readonly #context: StageContext;
  readonly #reduced = new Map<number, string>();
  /** Prints row-invariant subexpressions of all stages. */
  readonly #printInvariant: InvariantPrinter;
  readonly #vectors: RowVectors;
  readonly #reductions: RowReductions;

  constructor(kernel: RowKernel, layout: ReducingLayout, threads: number, block: string) {
    checkRowKernel(kernel);
    this.#threads = threads;
    this.#block = block;
    this.#kernel = kernel;
    this.#layout = layout;
    this.#text = new KernelText({ usesFastMath: layout.usesFastMath === true });
    this.#operands = new RowOperands(this.#text, kernel, layout, ["rows", "columns"]);
    this.#context = {
      text: this.#text,
      operands: this.#operands,
      shape: {
        ...{ width: layout.width ?? 4, access: layout.access },
        ...(layout.hasAlignedRows && { hasAlignedRows: true }),
      },
      row: "(int)row",
      reduced: this.#reduced,
    };
    this.#printInvariant = invariantPrinter(this.#context, kernel.stages);
    this.#vectors = new RowVectors(this.#context, kernel, layout, this.#printInvariant);
    this.#reductions = new RowReductions({
      ...{ context: this.#context, stages: kernel.stages, layout },
      ...{ vectors: this.#vectors, reduced: this.#reduced },
    });
  }

  print(): KernelText {
    const { stages } = this.#kernel;
    const { colsums } = this.#layout;
    const colsumIndices = colsumOutputs(this.#kernel);
    if (colsums) declareSharedRows(this.#text, colsums);
    if (colsums?.isLoop) return this.#printRowLoop(colsums, colsumIndices);
    this.#vectors.declareShared();
    this.#printIndices();
    const upfront = this.#layout.vectors > 0 ? this.#inputsWithoutAlias() : [];
    const { prefetchable } = this.#layout;
    if (prefetchable) {
      this.#vectors.load(upfront.filter(([input]) => prefetchable[input]));
      this.#text.line(`${this.#text.call("gridDependencyWait")};`);
    }
    this.#operands.loadInvariant();
    this.#vectors.load(upfront);
    for (const index of stages.keys()) this.#printStage(index, colsumIndices);
    if (colsums) reduceColumns(this.#text, colsums, colsumIndices);
    return this.#text;
  }

  #printStage(index: number, colsumIndices: readonly number[]): void {
    const { stages } = this.#kernel;
    const stage = stages[index];
    if (!stage) return;
    if (stage.kind === "reduce") {
      if (!this.#reduced.has(index)) this.#reductions.printFrom(index);
      return;
    }
    if (this.#vectors.count === "count") this.#skipUnchangedRow();
    if (colsumIndices.includes(stage.output)) {
      if (this.#layout.colsums?.isLoop) this.#printStores([stage], colsumIndices);
      else this.#storeSharedRow(colsumIndices.indexOf(stage.output), stage.value);
      return;
    }
    const laterStages = stages.slice(index + 1);
    this.#syncBeforeStores();
    this.#printStore(stage.output, stage.value, laterStages);
    this.#syncAfterStores(laterStages);
  }

  /** Other threads may not yet have read the elements that a store overwrites. */
  #syncBeforeStores(): void {
    // In a loop over rows, the threads have loaded them before a reduction.
    const isReduced = this.#layout.colsums?.isLoop === true && this.#reduced.size > 0;
    if ((this.#operands.rowInvariant.size > 0 && !isReduced) || this.#readsAtIndex) this.#syncRow();
  }

  #syncAfterStores(laterStages: readonly Stage[]): void {
    if (this.#readsOtherThreads(laterStages)) this.#syncRow();
    for (const [input, alias] of this.#layout.aliases) if (alias === "mixed") this.#vectors.drop(input);
  }

  /** Teams loop over rows, and accumulate column sums in registers. */
  #printRowLoop(colsums: ColumnSumLayout, colsumIndices: readonly number[]): KernelText {
    const text = this.#text;
    const { stages, outputs } = this.#kernel;
    text.define("const unsigned", "lane", `threadIdx.x % ${colsums.lanes}u`);
    text.define("const unsigned", "count", "columns");
    text.define("const bool", "isInside", "true");
    declareAccumulators(text, colsums, colsumIndices.length);
    if (!this.#isWarp) text.line("unsigned parity = 0u;");
    this.#printLoopOverRows(colsums, () => {
      const isLastStore = (stage: Stage): boolean =>
        stage.kind === "store" && outputs[stage.output]?.per !== "row";
      const firstStore = stages.findLastIndex((stage) => !isLastStore(stage)) + 1;
      for (let index = 0; index < firstStore; index++) this.#printStage(index, colsumIndices);
      const stores = stages.slice(firstStore).filter((stage) => stage.kind === "store");
      // A store that aliases other elements has to be complete before a later stage.
      const isMixed = [...this.#layout.aliases.values()].includes("mixed");
      const passes = isMixed ? stores.map((store) => [store]) : [stores];
      for (const [pass, passStores] of passes.entries()) {
        this.#syncBeforeStores();
        this.#printStores(passStores, colsumIndices);
        this.#syncAfterStores(passes.slice(pass + 1).flat());
      }
      if (!this.#isWarp) text.line("parity ^= 1u;");
    });
    storeAccumulators(text, colsums, colsumIndices, this.#layout.access, (body) => this.#vectors.loop(body));
    return text;
  }

  /** Prints the head of the loop over rows, with the loads of a row. */
  #printLoopOverRows(colsums: ColumnSumLayout, body: () => void): void {
    const text = this.#text;
    const { vectors, constantInputs = [] } = this.#layout;
    const upfront = vectors > 0 ? this.#inputsWithoutAlias() : [];
    const isConstant = ([input]: [number, Operand]): boolean => constantInputs.includes(input);
    this.#vectors.load(upfront.filter(isConstant));
    const constant = new Set(upfront.filter(isConstant).map(([input]) => input));
    if (!colsums.isPrefetched) {
      text.block(loopOverRows(colsums), () => {
        this.#operands.printRowAddresses("row", constant);
        this.#operands.loadInvariant();
        this.#vectors.load(upfront);
        body();
      });
      return;
    }
    const isPrefetched = (entry: [number, Operand]): boolean =>
      !isConstant(entry) && entry[1].dtype !== "draw";
    const prefetched = upfront.filter(isPrefetched);
    const inputs = new Set([...prefetched.map(([input]) => input), ...this.#operands.rowInvariant.keys()]);
    text.line(`unsigned row = ${firstRowOf(colsums)};`);
    this.#operands.declareNextInvariant();
    const next = this.#vectors.declareNext(prefetched);
    const loadNext = (row: string): void =>
      text.block(`if (${row} < rows)`, () => {
        this.#operands.printInputAddresses(row, inputs);
        this.#operands.loadNextInvariant();
        next.load();
      });
    loadNext("row");
    text.block(`for (; row < rows; row += ${rowStepOf(colsums)}u)`, () => {
      this.#operands.takeNextInvariant();
      next.take();
      text.line(`const unsigned nextRow = row + ${rowStepOf(colsums)}u;`);
      loadNext("nextRow");
      this.#operands.printRowAddresses("row", new Set([...inputs, ...constant]));
      // The pass that reads a draw makes its numbers: no load has to be waited for meanwhile.
      body();
    });
  }

  /** Stores in one pass over the row: each vector goes through all of them, so that they share its registers. */
  #printStores(stores: readonly StoreStage[], colsumIndices: readonly number[]): void {
    const { aliases } = this.#layout;
    const inputsOf = (output: number): number[] =>
      [...aliases].flatMap(([input, alias]) => (alias === output ? [input] : []));
    // An input is only loaded if a stage reads it before another one stores it.
    const [loaded, stored] = [new Set<number>(), new Set<number>()];
    for (const { output, value } of stores) {
      for (const { input } of loadsOf(value)) if (!stored.has(input)) loaded.add(input);
      for (const input of inputsOf(output)) stored.add(input);
    }
    this.#vectors.forEach(
      stores.map(({ value }) => value),
      (vectors, computed) => {
        const latest = new Map(vectors);
        for (const { output: index, value } of stores) {
          const output = this.#operands.outputs[index];
          const colsum = colsumIndices.indexOf(index);
          if (colsum >= 0)
            forEachElement(this.#context, value, latest, computed, (element, index) =>
              accumulate(this.#text, colsum, element, index),
            );
          else if (output) {
            const vec = storeValues(this.#context, output, value, latest, computed);
            for (const input of inputsOf(index)) latest.set(input, vec);
          }
        }
      },
      (input) => loaded.has(input),
    );
    for (const input of stored) this.#vectors.drop(input);
  }

  /** Leaves no elements to store in a row that stays unchanged. All threads go on, because they take part in barriers. */
  #skipUnchangedRow(): void {
    const { changes } = this.#layout;
    if (!changes) return;
    const condition = printExpression(this.#text, changes, leavesAtStart(this.#context), new Map());
    this.#text.define("const unsigned", "changedCount", `${condition} != 0 ? count : 0u`);
    this.#vectors.count = "changedCount";
  }

  /** The inputs that vary along the row, that no store aliases, and that are read in every row. */
  #inputsWithoutAlias(): [number, Operand][] {
    const read = this.#kernel.stages
      .filter((stage) => !this.#isPerRow(stage) && !(this.#layout.changes && stage.kind === "store"))
      .flatMap(({ value }) => vectorsReadBy(this.#context, value));
    const { aliases } = this.#layout;
    return [...new Map(read)].filter(([input]) => (aliases.get(input) ?? "none") === "none");
  }

  /** True if stages read elements that another thread may have stored. */
  #readsOtherThreads(stages: readonly Stage[]): boolean {
    const reads = stages.flatMap(({ value }) => loadsOf(value));
    return reads.some(({ input, at }) => at !== undefined || this.#layout.aliases.get(input) === "mixed");
  }

  #isPerRow(stage: Stage): boolean {
    return stage.kind === "store" && this.#kernel.outputs[stage.output]?.per === "row";
  }

  /** Stores the row of a column sum in shared memory. */
  #storeSharedRow(index: number, value: Expression): void {
    const text = this.#text;
    this.#vectors.forEach([value], (vectors, computed) => {
      const vec = text.freshName();
      text.line(`Vec<float, 4> ${vec};`);
      forEachElement(this.#context, value, vectors, computed, (element, index) => {
        text.line(`${vec}.element[${index}] = ${element};`);
      });
      const { colsums } = this.#layout;
      if (colsums) text.line(`${text.call("storeVec", sharedRowAddress(index, colsums), vec)};`);
    });
  }

  get #readsAtIndex(): boolean {
    return factsOf(this.#kernel).readsAtIndex;
  }

  /** Synchronises the threads of the row. */
  #syncRow(): void {
    this.#text.line(this.#isWarp ? "__syncwarp();" : teamBarrier(this.#text, this.#layout.colsums));
  }

  get #isWarp(): boolean {
    return this.#layout.lanes <= warpSize;
  }

  #printIndices(): void {
    const text = this.#text;
    const { lanes, colsums } = this.#layout;
    if (this.#isWarp) {
      text.define("const unsigned", "lane", `threadIdx.x % ${lanes}u`);
      const first = `${this.#block} * ${rowsPerBlock(lanes, this.#threads)}u`;
      text.define(
        "const unsigned",
        "threadRow",
        colsums ? firstRowOf(colsums) : `${first} + threadIdx.x / ${lanes}u`,
      );
      // Threads beyond the last row stay, because the whole warp takes part in the shuffles.
      text.define("const bool", "isInside", "threadRow < rows");
      text.define("const unsigned", "row", "isInside ? threadRow : rows - 1u");
      text.define("const unsigned", "count", "isInside ? columns : 0u");
    } else {
      text.define("const unsigned", "lane", "threadIdx.x");
      text.define("const unsigned", "row", this.#block);
      text.define("const unsigned", "count", "columns");
    }
    this.#operands.printRowAddresses("row");
  }

  #printStore(outputIndex: number, value: Expression, laterStages: readonly Stage[]): void {
    const text = this.#text;
    const output = this.#operands.outputs[outputIndex];
    if (!output) return;
    if (this.#kernel.outputs[outputIndex]?.per === "row") {
      const nodes = keepInvariants(this.#context, value, this.#printInvariant);
      text.block(this.#isWarp ? "if (isInside && lane == 0u)" : "if (lane == 0u)", () => {
        const computed = printExpression(text, value, leavesAtStart(this.#context), nodes);
        this.#operands.printOutputAddress(outputIndex);
        text.line(`${output.start}[0] = ${narrowed(text, output.dtype, computed)};`);
      });
      return;
    }
    const { aliases, vectors: cachedVectors } = this.#layout;
    const aliasingInputs = [...aliases].filter(([, alias]) => alias === outputIndex).map(([input]) => input);
    const isReadLater = laterStages.some((stage) =>
      loadsOf(stage.value).some(({ input }) => aliasingInputs.includes(input)),
    );
    const isForwarded = cachedVectors > 0 && isReadLater;
    const stored = isForwarded ? text.freshName() : "";
    if (isForwarded) text.line(`${vectorType(this.#context, output)} ${stored}[${cachedVectors}];`);
    // In a short row, some lane of every warp has the position.
    const match = this.#isWarp
      ? undefined
      : positionMatchIn(value, (input) => this.#operands.inputs[input]?.inner === "none");
    this.#vectors.forEach([value], (vectors, computed) => {
      const vec = storeValues(this.#context, output, value, vectors, computed, match);
      if (isForwarded) text.line(`${stored}[v] = ${vec};`);
    });
    // Store-to-load forwarding: later stages read the stored vectors from registers.
    for (const input of aliasingInputs) {
      if (isForwarded) this.#vectors.keep(input, `${stored}[v]`);
      else this.#vectors.drop(input);
    }
  }
}
