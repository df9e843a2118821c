/**
 * The vectors of a row that a thread of a row kernel reads. They stay in registers or in shared memory for all passes, or every pass loads
 * them again. A lane is a thread of the row.
 */

import { type Expression, type InputDtype, inputDtypes, type RowKernel } from "../../../ir/index.js";
import { positionOf } from "./column-partials.js";
import type { ColumnSumLayout } from "./column-sum-layout.js";
import { elementTypes } from "./element-types.js";
import type { Operand, RowLayout } from "./row-operands.js";
import { printBatches, vectorsInFlight } from "./vector-batches.js";
import {
  addressOf,
  type ComputedNodes,
  type InvariantPrinter,
  keepInvariants,
  loadedVector,
  type StageContext,
  vectorsReadBy,
  vectorType,
} from "./vectors.js";

export interface ReducingLayout extends RowLayout {
  readonly access: "vector" | "scalar";
  /** See `VectorShape`. */
  readonly hasAlignedRows?: boolean;
  /** Elements of a vector; default: 4. Vectors of 8 are not kept in registers, and sums have another order. */
  readonly width?: 4 | 8;
  /** Threads per row: a power of two. */
  readonly lanes: number;
  /** Vectors of a row that a thread keeps in registers; 0 if every pass loads them again. */
  readonly vectors: number;
  /** Bytes of the row's inputs in a thread's registers. */
  readonly cachedBytes: number;
  /** True if the rows of all draws begin with a new call, and neighbouring lanes of a warp have vectors of the same call. */
  readonly sharesCalls?: boolean;
  /** The vectors that a block keeps in shared memory, if a row does not fit in its registers. */
  readonly shared?: SharedVectors;
  /** An i32 that is 0 if a row keeps its values: its stores are skipped. */
  readonly changes?: Expression | undefined;
  /** The layout of the column sums, if the kernel has any. */
  readonly colsums?: ColumnSumLayout;
  /** In a loop over rows, the inputs that have the same vectors in every row. */
  readonly constantInputs?: readonly number[];
}

/** The first vectors of each thread, in shared memory. A thread reads only vectors that it stored, so no synchronisation is needed. */
export interface SharedVectors {
  readonly inputs: readonly number[];
  /** Vectors of a thread, for each of the inputs. */
  readonly vectors: number;
  /** True if they are the whole row. */
  readonly isWholeRow: boolean;
  readonly bytes: number;
  /** Resident blocks per SM with this much shared memory. */
  readonly residentBlocks: number;
}

/** An input, or a group of interleaved inputs. `operand` is that of the first input. */
interface InputGroup {
  readonly inputs: readonly number[];
  readonly operand: Operand;
}

/** An array of a thread's vectors of a group. */
interface VectorArray {
  readonly group: InputGroup;
  readonly name: string;
}

/** The vectors of a later row: they are loaded, then they become those of the present row. */
export interface NextVectors {
  load(): void;
  take(): void;
}

export class RowVectors {
  /** The number of elements of the row that are read or stored. */
  count = "count";
  readonly #context: StageContext;
  readonly #inputs: RowKernel["inputs"];
  readonly #layout: ReducingLayout;
  readonly #printInvariant: InvariantPrinter;
  /** The inputs whose vectors an earlier pass has stored in shared memory. */
  readonly #inShared = new Set<number>();
  /** Vectors in registers by input: valid until a store may alias them. */
  readonly #cached = new Map<number, string>();

  constructor(
    context: StageContext,
    { inputs }: RowKernel,
    layout: ReducingLayout,
    printInvariant: InvariantPrinter,
  ) {
    this.#context = context;
    this.#inputs = inputs;
    this.#layout = layout;
    this.#printInvariant = printInvariant;
  }

  /** Notes that an input's vectors are in registers. `name`: vector `v` in the generated code. */
  keep(input: number, name: string): void {
    this.#cached.set(input, name);
  }

  /** Notes that the registers no longer have an input's vectors. */
  drop(input: number): void {
    this.#cached.delete(input);
  }

  declareShared(): void {
    const { shared, lanes } = this.#layout;
    if (!shared) return;
    const { text } = this.#context;
    text.line(`${text.call("dynamicSharedMemory", "smem", `${shared.bytes}`)};`);
    let offset = 0;
    for (const input of shared.inputs) {
      const { type, bytes } = elementTypeOf(this.#inputs[input]);
      text.line(`auto* const ${sharedName(input)} = reinterpret_cast<${type}*>(smem + ${offset});`);
      offset += shared.vectors * this.width * lanes * bytes;
    }
  }

  /**
   * Prints a loop over a thread's vectors of the row. `body` gets the vectors of the inputs that the values read. `isLoaded` tells which of
   * them are loaded; default: all.
   */
  forEach(
    values: readonly Expression[],
    body: (vectors: ReadonlyMap<number, string>, computed: ComputedNodes) => void,
    isLoaded: (input: number) => boolean = () => true,
  ): void {
    const all = new Map(values.flatMap((value) => vectorsReadBy(this.#context, value)));
    const read = [...all].filter(([input]) => isLoaded(input));
    if (this.#layout.vectors > 0) this.load(read);
    const computed = new Map(
      values.flatMap((value) => [...keepInvariants(this.#context, value, this.#printInvariant)]),
    );
    if (this.#layout.vectors > 0) {
      this.loop(() => body(this.#cached, computed));
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
    const elements = shared.vectors * this.width * lanes;
    this.#loopInBatches(read, printBody, { sharedInputs, ...(!shared.isWholeRow && { to: `${elements}u` }) });
    if (!shared.isWholeRow) this.#loopInBatches(read, printBody, { from: elements });
    for (const input of sharedInputs) this.#inShared.add(input);
  }

  /**
   * Prints a loop over vectors that are not in registers. `from`, `to`: a range of the row. `sharedInputs` are read from shared memory. Their
   * first pass reads them from global memory and stores them there.
   */
  #loopInBatches(
    read: readonly [number, Operand][],
    body: (vectors: ReadonlyMap<number, string>) => void,
    { from = 0, to = this.count, sharedInputs = new Set<number>() } = {},
  ): void {
    const { text } = this.#context;
    const groups = this.#groupInputs(read);
    const isKept = ({ inputs: [input = 0] }: InputGroup): boolean =>
      sharedInputs.has(input) && this.#inShared.has(input);
    const { lanes, access } = this.#layout;
    const vectors = new Map<number, string>();
    let arrays: readonly { readonly group: InputGroup; readonly name: string }[] = [];
    printBatches(text, {
      ...{ from, to, width: this.width, lanes, count: this.#vectorsInFlight(read) },
      ...(access === "scalar" && { end: this.count }),
      declare: (count) => {
        arrays = groups.map((group) => ({ group, name: this.#declare(group, `[${count}]`, vectors) }));
      },
      loads: groups.length === 0 ? "nothing" : groups.every(isKept) ? "shared memory" : "memory",
      load: () => {
        for (const { group, name } of arrays) {
          const [input = 0] = group.inputs;
          const kept = `${text.use("loadVec")}<${this.width}>(${sharedName(input)} + position)`;
          if (isKept(group)) text.line(`${name}[v] = ${kept};`);
          else this.#loadGroup(group, `${name}[v]`);
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
   * Prints a loop over vectors that are not in registers, with accumulators that are. The loops are unrolled, so that `v` is a constant and
   * accumulators stay in registers. As in other batches, several loads are in flight.
   */
  #loopOverAccumulators(
    loop: ColumnSumLayout,
    read: readonly [number, Operand][],
    body: (vectors: ReadonlyMap<number, string>) => void,
  ): void {
    const { text } = this.#context;
    const vectors = new Map<number, string>();
    const arrays = this.#groupInputs(read).map((group): [InputGroup, string] => [
      group,
      this.#declare(group, `[${loop.vectors}]`, vectors),
    ]);
    const count = Math.min(loop.vectors, this.#vectorsInFlight(read));
    const eachVector = (print: () => void): void =>
      text.unrolled("inBatch", count, () => {
        text.line(`const unsigned v = batch * ${count}u + inBatch;`);
        this.#ifInRow(loop.vectors % count === 0 ? [] : [`v < ${loop.vectors}u`], print);
      });
    text.unrolled("batch", Math.ceil(loop.vectors / count), () => {
      if (arrays.length > 0)
        eachVector(() => {
          for (const [group, name] of arrays) this.#loadGroup(group, `${name}[v]`);
        });
      eachVector(() => body(vectors));
    });
  }

  #vectorsInFlight(read: readonly [number, Operand][]): number {
    const vectorBytes = read.reduce((sum, [, { dtype }]) => sum + this.width * inputDtypes[dtype].bytes, 0);
    return vectorsInFlight(vectorBytes, this.#layout.lanes);
  }

  /** Loads all vectors of the inputs that are not in registers yet, with all loads in flight together. Random numbers are drawn meanwhile. */
  load(read: readonly [number, Operand][]): void {
    const missing = read.filter(([input]) => !this.#cached.has(input));
    this.#loadTogether(missing.filter(([, { dtype }]) => dtype !== "draw"));
    const draws = missing.filter(([, { dtype }]) => dtype === "draw");
    if (this.#layout.sharesCalls) this.#drawPairs(draws);
    else this.#loadTogether(draws);
  }

  /** Draws the numbers of a row. Neighbouring lanes share the calls of two vectors; those of an odd one are drawn by each lane. */
  #drawPairs(draws: readonly [number, Operand][]): void {
    const { text } = this.#context;
    const { vectors } = this.#layout;
    for (const { group, name } of this.#declareArrays(draws, this.#cached)) {
      const { memory, start } = group.operand;
      const indexOf = (vector: string): string => `${start} + ${this.#positionOf(vector)}`;
      const last = `${vectors - 1}u`;
      if (vectors % 2 === 1)
        text.line(`${name}[${last}] = ${text.use("drawNumbers")}<4>(${memory}, ${indexOf(last)});`);
      text.unrolled("pair", Math.floor(vectors / 2), () => {
        const [first, second] = ["(2u * pair)", "(2u * pair + 1u)"];
        const targets = [first, second].map((vector) => `${name}[${vector}]`);
        text.line(`${text.call("drawPair", memory, indexOf(first), indexOf(second), ...targets)};`);
      });
    }
  }

  #loadTogether(missing: readonly [number, Operand][]): void {
    this.#loadArrays(this.#declareArrays(missing, this.#cached));
  }

  #declareArrays(read: readonly [number, Operand][], vectors: Map<number, string>): readonly VectorArray[] {
    return this.#groupInputs(read).map((group) => ({
      group,
      name: this.#declare(group, `[${this.#layout.vectors}]`, vectors),
    }));
  }

  #loadArrays(arrays: readonly VectorArray[]): void {
    if (arrays.length === 0) return;
    this.loop(() => {
      for (const { group, name } of arrays) this.#loadGroup(group, `${name}[v]`);
    });
  }

  /** Declares registers for the vectors of inputs in a later row. */
  declareNext(read: readonly [number, Operand][]): NextVectors {
    const arrays = this.#declareArrays(read, new Map());
    return {
      load: () => this.#loadArrays(arrays),
      take: () => {
        const { text } = this.#context;
        const taken = this.#declareArrays(read, this.#cached);
        for (const [index, { group, name }] of taken.entries()) {
          const next = arrays[index]?.name ?? "";
          text.unrolled("v", this.#layout.vectors, () => {
            for (const place of group.inputs.keys()) {
              const element = group.inputs.length > 1 ? `[v][${place}]` : "[v]";
              text.line(`${name}${element} = ${next}${element};`);
            }
          });
        }
      },
    };
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
    const { text } = this.#context;
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

  #loadGroup({ inputs, operand }: InputGroup, target: string): void {
    const { text } = this.#context;
    if (inputs.length > 1) text.line(`${text.call("loadInterleaved", addressOf(operand), target)};`);
    else text.line(`${target} = ${loadedVector(this.#context, this.#constantIn(inputs[0], operand))};`);
  }

  /** A constant input begins at its first row, whose address does not follow from a row. */
  #constantIn(input: number | undefined, operand: Operand): Operand {
    const isConstant = input !== undefined && this.#layout.constantInputs?.includes(input);
    return isConstant ? { ...operand, start: operand.memory } : operand;
  }

  /** Prints a loop over vectors in registers: those of inputs, or accumulators of column sums. */
  loop(body: () => void): void {
    this.#context.text.unrolled("v", this.#rowLoop?.vectors ?? this.#layout.vectors, () =>
      this.#ifInRow([], body),
    );
  }

  /**
   * Prints the body for vector `v` of the thread, under the condition that the vector is in the row. Without a condition, the compiler can
   * interleave the instructions of several vectors.
   */
  #ifInRow(conditions: readonly string[], body: () => void): void {
    const { text } = this.#context;
    const { access } = this.#layout;
    // Random draws, and accumulators that are not stored yet, do not use it.
    text.line(`[[maybe_unused]] const unsigned position = ${this.#positionOf("v")};`);
    const all = [...conditions, ...this.#endConditions()];
    const print = (): void => {
      // Random draws, and accumulators in shared memory, do not use it.
      if (access === "scalar")
        text.line(`[[maybe_unused]] const unsigned remaining = ${this.count} - position;`);
      body();
    };
    if (all.length > 0) text.block(`if (${all.join(" && ")})`, print);
    else print();
  }

  /** C++: the first element of a thread's vector in the row. */
  #positionOf(vector: string): string {
    const { lanes } = this.#layout;
    return this.#rowLoop ? positionOf(this.#rowLoop, vector) : `(${vector} * ${lanes}u + lane) * 4u`;
  }

  /** C++: the conditions that vector `v` begins before the end of the row. Loops over `v` are unrolled, so most are constants. */
  #endConditions(): readonly string[] {
    const end = `position < ${this.count}`;
    if (!this.#rowLoop) return [end];
    const { vectors, checkedVectors } = this.#rowLoop;
    if (checkedVectors === 0) return [];
    return [checkedVectors === vectors ? end : `(v < ${vectors - checkedVectors}u || ${end})`];
  }

  /** The layout of column sums, if teams loop over rows. */
  get #rowLoop(): ColumnSumLayout | undefined {
    const { colsums } = this.#layout;
    return colsums?.isLoop ? colsums : undefined;
  }

  get width(): 4 | 8 {
    return this.#layout.width ?? 4;
  }
}

const sharedName = (input: number): string => `sharedInput${input}`;

function elementTypeOf(dtype: InputDtype = "f32"): { readonly type: string; readonly bytes: number } {
  return { type: elementTypes[dtype].type, bytes: inputDtypes[dtype].bytes };
}
