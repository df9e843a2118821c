/**
 * Prints row kernels with reductions as CUDA C++. A few lanes of a warp, a warp, or a block share a row, depending on the row's length
 * alone. Each thread takes every n-th vector of four elements and accumulates the four lanes separately. The threads' results are
 * combined in a fixed order (warp-reduce butterfly). So the bits of a row follow from its length, not from its address or the grid.
 *
 * If the row fits, each input is loaded once and its vectors stay in registers for all stages. Of longer rows, a block keeps the first
 * vectors in shared memory. Independent reductions share one pass over the row and one butterfly.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { Expression, RowKernel, Stage } from "../../../ir/index.js";
import { checkRowKernel, factsOf, identityOf, inputDtypes, loadsOf } from "../../../ir/index.js";
import { maxThreadsPerBlock, registerBytes, registerBytesPerThread, warpSize } from "../../cost-model.js";
import {
  accumulate,
  colsumOutputs,
  declareAccumulators,
  declareSharedRows,
  firstRowOf,
  loopOverRows,
  positionOf,
  reduceColumns,
  sharedRowAddress,
  storeAccumulators,
} from "./column-partials.js";
import type { ColumnSumLayout } from "./column-sum-layout.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, literal, printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import {
  addOnline,
  declareLanes,
  declareOnlineSums,
  onlineSoftmaxAt,
  rescaledSum,
} from "./online-softmax.js";
import { positionMatchIn } from "./position-match.js";
import { narrowed, type Operand, type RowLayout, RowOperands } from "./row-operands.js";
import { independentReductionsFrom, usesOnlineSoftmax } from "./row-passes.js";
import { printBatches, vectorsInFlight } from "./vector-batches.js";
import {
  addressOf,
  type ComputedNodes,
  forEachLane,
  type InvariantPrinter,
  invariantPrinter,
  keepInvariants,
  leavesAtStart,
  loadedVector,
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

export interface ReducingLayout extends RowLayout {
  readonly access: "vector" | "scalar";
  /** Elements of a vector; default: 4. With 8, vectors are not in registers, and the order of sums is another one. */
  readonly width?: 4 | 8;
  /** Threads per row: a power of two. */
  readonly lanes: number;
  /** Vectors of a row that a thread keeps in registers; 0 if it loads them again in every stage. */
  readonly vectors: number;
  /** Bytes of the row's inputs in a thread's registers. */
  readonly cachedBytes: number;
  /** The vectors that a block keeps in shared memory, of a row that its registers cannot hold. */
  readonly shared?: SharedVectors;
  /** An i32 that is 0 for rows that stay unchanged: their stores are skipped. */
  readonly changes?: Expression | undefined;
  /** The layout of the column sums, if the kernel has any. */
  readonly colsums?: ColumnSumLayout;
}

/** The first vectors of each thread, in shared memory. Each thread reads its own, so that no synchronisation is needed. */
export interface SharedVectors {
  readonly inputs: readonly number[];
  /** Vectors of a thread, for each of the inputs. */
  readonly vectors: number;
  /** True if they are the whole row. */
  readonly isWholeRow: boolean;
  readonly bytes: number;
  /** Blocks of an SM that this leaves shared memory for. */
  readonly residentBlocks: number;
}

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

/** True if a block of so many threads can reduce rows of so many lanes: at most a warp, or the whole block. */
export function canReduceWith(threads: number, lanes: number): boolean {
  return lanes <= warpSize || lanes === threads;
}

/** The same as a device function for blocks of so many threads, if `canReduceWith` allows it. */
export function printReducingFunction(
  kernel: RowKernel,
  layout: ReducingLayout,
  threads: number,
  name: string,
): BlockFunction {
  const text = new Printer(kernel, layout, threads, "block").print();
  return {
    ...text.toFunction(name, ["const unsigned block"]),
    leadingArguments: ["block"],
    sharedDoubles: 0,
  };
}

/** A reducing stage, and the names of its locals in the generated code. */
interface Reduction extends Extract<Stage, { kind: "reduce" }> {
  readonly stage: number;
  readonly real: string;
  readonly acc: string;
  readonly total: string;
  readonly shared: string;
  combine(a: string, b: string): string;
}

/** An input, or a group of interleaved inputs; the operand is the first one. */
interface InputGroup {
  readonly inputs: readonly number[];
  readonly operand: Operand;
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
  /** The inputs whose vectors an earlier pass has stored in shared memory. */
  readonly #inShared = new Set<number>();
  /** Vectors in registers by input: valid until a store may alias them. */
  readonly #cached = new Map<number, string>();
  /** The number of elements of the row that are read or stored. */
  #count = "count";

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
      shape: { width: this.#width, access: layout.access },
      row: "(int)row",
      reduced: this.#reduced,
    };
    this.#printInvariant = invariantPrinter(this.#context, kernel.stages);
  }

  print(): KernelText {
    const { stages } = this.#kernel;
    const { colsums } = this.#layout;
    const colsumIndices = colsumOutputs(this.#kernel);
    if (colsums) declareSharedRows(this.#text, colsums);
    if (colsums?.isLoop) return this.#printRowLoop(colsums, colsumIndices);
    this.#declareSharedVectors();
    this.#printIndices();
    const upfront = this.#layout.vectors > 0 ? this.#inputsWithoutAlias() : [];
    const { prefetchable } = this.#layout;
    if (prefetchable) {
      this.#loadInputs(upfront.filter(([input]) => prefetchable[input]));
      this.#text.line(`${this.#text.call("gridDependencyWait")};`);
    }
    this.#operands.loadInvariant();
    this.#loadInputs(upfront);
    for (const index of stages.keys()) this.#printStage(index, colsumIndices);
    if (colsums) reduceColumns(this.#text, colsums, colsumIndices);
    return this.#text;
  }

  #printStage(index: number, colsumIndices: readonly number[]): void {
    const { stages } = this.#kernel;
    const stage = stages[index];
    if (!stage) return;
    if (stage.kind === "reduce") {
      if (!this.#reduced.has(index)) this.#printReductionsFrom(index);
      return;
    }
    if (this.#count === "count") this.#skipUnchangedRow();
    if (colsumIndices.includes(stage.output)) {
      if (this.#rowLoop) this.#printStores([stage], colsumIndices);
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
    if (this.#operands.rowInvariant.size > 0 || this.#readsAtIndex) this.#syncRow();
  }

  #syncAfterStores(laterStages: readonly Stage[]): void {
    if (this.#readsOtherThreads(laterStages)) this.#syncRow();
    for (const [input, alias] of this.#layout.aliases) if (alias === "mixed") this.#cached.delete(input);
  }

  /** Teams loop over rows, and accumulate column sums in registers. */
  #printRowLoop(colsums: ColumnSumLayout, colsumIndices: readonly number[]): KernelText {
    const text = this.#text;
    const { stages, outputs } = this.#kernel;
    text.define("const unsigned", "lane", `threadIdx.x % ${colsums.lanes}u`);
    text.define("const unsigned", "count", "columns");
    text.define("const bool", "isInside", "true");
    declareAccumulators(text, colsums, colsumIndices.length);
    text.block(loopOverRows(colsums), () => {
      this.#operands.printRowAddresses("row");
      this.#operands.loadInvariant();
      if (this.#layout.vectors > 0) this.#loadInputs(this.#inputsWithoutAlias());
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
      // The next row uses the shared memory of the reductions again.
      if (!this.#isWarp) this.#syncRow();
    });
    storeAccumulators(text, colsums, colsumIndices, this.#layout.access, (body) =>
      this.#loopOverVectors(body),
    );
    return text;
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
    this.#forEachVector(
      stores.map(({ value }) => value),
      (vectors, computed) => {
        const latest = new Map(vectors);
        for (const { output: index, value } of stores) {
          const output = this.#operands.outputs[index];
          const colsum = colsumIndices.indexOf(index);
          if (colsum >= 0)
            forEachLane(this.#context, value, latest, computed, (laneValue, lane) =>
              accumulate(this.#text, colsum, laneValue, lane),
            );
          else if (output) {
            const vec = storeValues(this.#context, output, value, latest, computed);
            for (const input of inputsOf(index)) latest.set(input, vec);
          }
        }
      },
      (input) => loaded.has(input),
    );
    for (const input of stored) this.#cached.delete(input);
  }

  #declareSharedVectors(): void {
    const { shared, lanes } = this.#layout;
    if (!shared) return;
    const text = this.#text;
    text.line(`${text.call("dynamicSharedMemory", "smem", `${shared.bytes}`)};`);
    let offset = 0;
    for (const input of shared.inputs) {
      const { type, bytes } = elementTypeOf(this.#kernel, input);
      text.line(`auto* const ${sharedName(input)} = reinterpret_cast<${type}*>(smem + ${offset});`);
      offset += shared.vectors * this.#width * lanes * bytes;
    }
  }

  /** Leaves no elements to store in a row that stays unchanged. All threads go on, because they take part in barriers. */
  #skipUnchangedRow(): void {
    const { changes } = this.#layout;
    if (!changes) return;
    const condition = printExpression(this.#text, changes, leavesAtStart(this.#context), new Map());
    this.#text.define("const unsigned", "changedCount", `${condition} != 0 ? count : 0u`);
    this.#count = "changedCount";
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
    this.#forEachVector([value], (vectors, computed) => {
      const vec = text.freshName();
      text.line(`Vec<float, 4> ${vec};`);
      forEachLane(this.#context, value, vectors, computed, (laneValue, lane) => {
        text.line(`${vec}.lane[${lane}] = ${laneValue};`);
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
    this.#text.line(this.#isWarp ? "__syncwarp();" : "__syncthreads();");
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
    this.#forEachVector([value], (vectors, computed) => {
      const vec = storeValues(this.#context, output, value, vectors, computed, match);
      if (isForwarded) text.line(`${stored}[v] = ${vec};`);
    });
    // Store-to-load forwarding: later stages read the stored vectors from registers.
    for (const input of aliasingInputs) {
      if (isForwarded) this.#cached.set(input, `${stored}[v]`);
      else this.#cached.delete(input);
    }
  }

  get #width(): 4 | 8 {
    return this.#layout.width ?? 4;
  }

  /** Prints the reductions of the pass that begins with a stage. */
  #printReductionsFrom(first: number): void {
    const { stages } = this.#kernel;
    const value = usesOnlineSoftmax(this.#layout) ? onlineSoftmaxAt(stages, first) : undefined;
    if (value) this.#printOnlineSoftmax(value, this.#namedReductions(stages.slice(first, first + 2), first));
    else this.#printReductions(this.#namedReductions(independentReductionsFrom(stages, first), first));
  }

  #printOnlineSoftmax(value: Expression, [max, sum]: readonly Reduction[]): void {
    if (!max || !sum) return;
    const text = this.#text;
    const sums = { max: max.acc, sum: sum.acc };
    declareOnlineSums(text, sums);
    this.#forEachVector([value], (vectors, computed) => {
      const lanes = text.freshName();
      declareLanes(text, lanes, this.#width);
      forEachLane(this.#context, value, vectors, computed, (laneValue, lane) => {
        text.line(`${lanes}[${lane}] = ${laneValue};`);
      });
      addOnline(text, sums, lanes, this.#width);
    });
    text.line(`float ${max.total} = ${max.acc};`);
    this.#reduceThreads([max]);
    text.line(`float ${sum.total} = ${rescaledSum(text, sums, max.total)};`);
    this.#reduceThreads([sum]);
  }

  /** Reductions, with the names of their locals. */
  #namedReductions(stages: readonly Stage[], first: number): readonly Reduction[] {
    return stages.flatMap((stage, offset): Reduction | [] => {
      if (stage.kind !== "reduce") return [];
      const index = first + offset;
      const { type } = stage.value;
      const combine: Reduction["combine"] = (a, b) => binary(this.#text, stage.op, type, a, b);
      const names = { acc: `acc${index}`, total: `total${index}`, shared: `shared${index}` };
      return { ...stage, ...names, stage: index, real: computeTypes[type], combine };
    });
  }

  #printReductions(reductions: readonly Reduction[]): void {
    const text = this.#text;
    for (const { op, value, real, acc } of reductions) {
      const identity = literal(value.type, identityOf(op, value.type));
      text.line(`${real} ${acc}[4] = {${Array(4).fill(identity).join(", ")}};`);
    }
    this.#forEachVector(
      reductions.map(({ value }) => value),
      (vectors, computed) => {
        for (const { value, acc, combine } of reductions) {
          forEachLane(this.#context, value, vectors, computed, (laneValue, lane) => {
            const partial = this.#width === 4 ? `${acc}[${lane}]` : `${acc}[${lane} % 4u]`;
            text.line(`${partial} = ${combine(partial, laneValue)};`);
          });
        }
      },
    );
    for (const { real, acc, total, combine } of reductions) {
      const [first, second] = [combine(`${acc}[0]`, `${acc}[1]`), combine(`${acc}[2]`, `${acc}[3]`)];
      text.line(`${real} ${total} = ${combine(first, second)};`);
    }
    this.#reduceThreads(reductions);
  }

  /** Combines the totals of the row's threads. */
  #reduceThreads(reductions: readonly Reduction[]): void {
    this.#printButterfly(Math.min(warpSize, this.#layout.lanes), reductions);
    if (!this.#isWarp) this.#reduceWarps(reductions);
    for (const { stage, total } of reductions) this.#reduced.set(stage, total);
  }

  /** Warp-reduce butterfly over neighbouring lanes: all of them get the result. */
  #printButterfly(lanes: number, reductions: readonly Reduction[]): void {
    for (let distance = lanes / 2; distance >= 1; distance /= 2) {
      for (const { total, combine } of reductions) {
        const other = `__shfl_xor_sync(0xffffffffu, ${total}, ${distance})`;
        this.#text.line(`${total} = ${combine(total, other)};`);
      }
    }
  }

  #reduceWarps(reductions: readonly Reduction[]): void {
    const text = this.#text;
    const warps = this.#layout.lanes / warpSize;
    for (const { real, shared, total } of reductions) {
      text.line(`__shared__ ${real} ${shared}[${warps}];`);
      text.line(`if (lane % ${warpSize}u == 0u) ${shared}[lane / ${warpSize}u] = ${total};`);
    }
    text.line("__syncthreads();");
    for (const { shared, total } of reductions) text.line(`${total} = ${shared}[lane % ${warps}u];`);
    this.#printButterfly(warps, reductions);
  }

  /** Runs the body over a thread's vectors of the row, with those of the inputs that the values read. `isLoaded`: default: all. */
  #forEachVector(
    values: readonly Expression[],
    body: (vectors: ReadonlyMap<number, string>, computed: ComputedNodes) => void,
    isLoaded: (input: number) => boolean = () => true,
  ): void {
    const all = new Map(values.flatMap((value) => vectorsReadBy(this.#context, value)));
    const read = [...all].filter(([input]) => isLoaded(input));
    if (this.#layout.vectors > 0) this.#loadInputs(read);
    const computed = new Map(
      values.flatMap((value) => [...keepInvariants(this.#context, value, this.#printInvariant)]),
    );
    if (this.#layout.vectors > 0) {
      this.#loopOverVectors(() => body(this.#cached, computed));
      return;
    }
    if (this.#rowLoop) {
      this.#loopOverAccumulators(this.#rowLoop, read, (vectors) => body(vectors, computed));
      return;
    }
    const { shared, lanes } = this.#layout;
    const sharedInputs = new Set(
      shared ? read.flatMap(([input]) => (shared.inputs.includes(input) ? input : [])) : [],
    );
    const printBody = (vectors: ReadonlyMap<number, string>): void => body(vectors, computed);
    if (!shared || sharedInputs.size === 0) {
      this.#loopInBatches(read, printBody);
      return;
    }
    const elements = shared.vectors * this.#width * lanes;
    this.#loopInBatches(read, printBody, { sharedInputs, ...(!shared.isWholeRow && { to: `${elements}u` }) });
    if (!shared.isWholeRow) this.#loopInBatches(read, printBody, { from: elements });
    for (const input of sharedInputs) this.#inShared.add(input);
  }

  /**
   * Runs the body over vectors that are not in registers. `from`, `to`: a range of the row. `sharedInputs` are read from shared memory, or in
   * their first pass from memory, and kept there.
   */
  #loopInBatches(
    read: readonly [number, Operand][],
    body: (vectors: ReadonlyMap<number, string>) => void,
    { from = 0, to = this.#count, sharedInputs = new Set<number>() } = {},
  ): void {
    const text = this.#text;
    const groups = this.#groupInputs(read);
    const isKept = ({ inputs: [input = 0] }: InputGroup): boolean =>
      sharedInputs.has(input) && this.#inShared.has(input);
    const { lanes, access } = this.#layout;
    const vectors = new Map<number, string>();
    let arrays: readonly { readonly group: InputGroup; readonly name: string }[] = [];
    printBatches(text, {
      ...{ from, to, width: this.#width, lanes, count: this.#vectorsInFlight(read) },
      ...(access === "scalar" && { end: this.#count }),
      declare: (count) => {
        arrays = groups.map((group) => ({ group, name: this.#declare(group, `[${count}]`, vectors) }));
      },
      loads: groups.length === 0 ? "nothing" : groups.every(isKept) ? "shared memory" : "memory",
      load: () => {
        for (const { group, name } of arrays) {
          const [input = 0] = group.inputs;
          const kept = `${text.use("loadVec")}<${this.#width}>(${sharedName(input)} + position)`;
          if (isKept(group)) text.line(`${name}[v] = ${kept};`);
          else this.#load(group, `${name}[v]`);
        }
      },
      use: () => {
        for (const { group, name } of arrays) {
          const [input = 0] = group.inputs;
          if (sharedInputs.has(input) && !isKept(group))
            text.line(`${text.call("storeVec", `${sharedName(input)} + position`, `${name}[v]`)};`);
        }
        body(vectors);
      },
    });
  }

  /**
   * Runs the body over vectors that are not in registers, next to accumulators that are. The loops are unrolled, so that `v` is a constant.
   * As in other batches, several loads are in flight.
   */
  #loopOverAccumulators(
    loop: ColumnSumLayout,
    read: readonly [number, Operand][],
    body: (vectors: ReadonlyMap<number, string>) => void,
  ): void {
    const text = this.#text;
    const vectors = new Map<number, string>();
    const arrays = this.#groupInputs(read).map((group): [InputGroup, string] => [
      group,
      this.#declare(group, `[${loop.vectors}]`, vectors),
    ]);
    const count = Math.min(loop.vectors, this.#vectorsInFlight(read));
    const eachVector = (print: () => void): void =>
      text.unrolled("inBatch", count, () => {
        text.line(`const unsigned v = batch * ${count}u + inBatch;`);
        this.#ifInRow(loop.vectors % count === 0 ? "" : `v < ${loop.vectors}u && `, print);
      });
    text.unrolled("batch", Math.ceil(loop.vectors / count), () => {
      if (arrays.length > 0)
        eachVector(() => {
          for (const [group, name] of arrays) this.#load(group, `${name}[v]`);
        });
      eachVector(() => body(vectors));
    });
  }

  #vectorsInFlight(read: readonly [number, Operand][]): number {
    const vectorBytes = read.reduce((sum, [, { dtype }]) => sum + this.#width * inputDtypes[dtype].bytes, 0);
    return vectorsInFlight(vectorBytes, this.#layout.lanes);
  }

  /** Loads all vectors of the inputs that are not in registers yet, with all loads in flight together. Numbers are drawn meanwhile. */
  #loadInputs(read: readonly [number, Operand][]): void {
    const missing = read.filter(([input]) => !this.#cached.has(input));
    this.#loadTogether(missing.filter(([, { dtype }]) => dtype !== "draw"));
    this.#loadTogether(missing.filter(([, { dtype }]) => dtype === "draw"));
  }

  #loadTogether(missing: readonly [number, Operand][]): void {
    if (missing.length === 0) return;
    const arrays = this.#groupInputs(missing).map((group): [InputGroup, string] => [
      group,
      this.#declare(group, `[${this.#layout.vectors}]`, this.#cached),
    ]);
    this.#loopOverVectors(() => {
      for (const [group, name] of arrays) this.#load(group, `${name}[v]`);
    });
  }

  /** Groups interleaved inputs that are all read, so that they are loaded together. */
  #groupInputs(read: readonly [number, Operand][]): readonly InputGroup[] {
    const { interleaved = [] } = this.#layout;
    const isRead = (input: number): boolean => read.some(([other]) => other === input);
    const groups = interleaved.filter((inputs) => inputs.every(isRead));
    return read.flatMap(([input, operand]): InputGroup[] => {
      const inputs = groups.find((group) => group.includes(input)) ?? [input];
      return inputs[0] === input ? [{ inputs, operand }] : [];
    });
  }

  /** Declares registers for a group of inputs, notes the vector of each in `vectors`, and returns the array's name. */
  #declare({ inputs, operand }: InputGroup, length: string, vectors: Map<number, string>): string {
    const text = this.#text;
    const name = text.freshName();
    const isInterleaved = inputs.length > 1;
    text.line(
      `${vectorType(this.#context, operand)} ${name}${length}${isInterleaved ? `[${inputs.length}]` : ""};`,
    );
    for (const [index, input] of inputs.entries()) {
      vectors.set(input, `${name}${length && "[v]"}${isInterleaved ? `[${index}]` : ""}`);
    }
    return name;
  }

  #load({ inputs, operand }: InputGroup, target: string): void {
    const text = this.#text;
    if (inputs.length > 1) text.line(`${text.call("loadInterleaved", addressOf(operand), target)};`);
    else text.line(`${target} = ${loadedVector(this.#context, operand)};`);
  }

  /** Runs the body over vectors in registers. In a loop over rows, these are at least the accumulators. */
  #loopOverVectors(body: () => void): void {
    this.#text.unrolled("v", this.#rowLoop?.vectors ?? this.#layout.vectors, () => this.#ifInRow("", body));
  }

  /** Prints the body for vector `v` of the thread, if that is in the row. */
  #ifInRow(condition: string, body: () => void): void {
    const text = this.#text;
    const { lanes, access } = this.#layout;
    const position = this.#rowLoop ? positionOf(this.#rowLoop) : `(v * ${lanes}u + lane) * 4u`;
    text.line(`const unsigned position = ${position};`);
    text.block(`if (${condition}position < ${this.#count})`, () => {
      // Numbers that are drawn, and accumulators in shared memory, need none.
      if (access === "scalar")
        text.line(`[[maybe_unused]] const unsigned remaining = ${this.#count} - position;`);
      body();
    });
  }

  /** The layout of column sums, if teams loop over rows. */
  get #rowLoop(): ColumnSumLayout | undefined {
    const { colsums } = this.#layout;
    return colsums?.isLoop ? colsums : undefined;
  }
}

const sharedName = (input: number): string => `sharedInput${input}`;

function elementTypeOf(
  { inputs }: RowKernel,
  input: number,
): { readonly type: string; readonly bytes: number } {
  const dtype = inputs[input] ?? "f32";
  return { type: elementTypes[dtype].type, bytes: inputDtypes[dtype].bytes };
}
