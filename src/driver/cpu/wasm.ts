/**
 * A small assembler for WebAssembly modules: functions in, bytes out. Every module imports the device memory as
 * `env.memory` and exports all its functions. The engine that loads the bytes checks types. This file checks
 * errors that the engine would report only by an offset: unknown parameters and functions, branches to ended blocks.
 */

import { HoldfastError } from "../../errors/index.js";
import { KiB } from "../../units/index.js";
import {
  emptyBlock,
  type LaneOpcode,
  laneOpcodes,
  type MemoryOpcode,
  memoryOpcodes,
  type StackOpcode,
  shuffleOpcode,
  stackOpcodes,
  structureOpcodes,
  type ValueType,
  valueTypes,
} from "./wasm-opcodes.js";

export interface Local {
  readonly index: number;
  readonly type: ValueType;
}

/** A branch target: a block or loop. Valid only inside its body. */
export interface Label {
  readonly depth: number;
}

export interface WasmFunction {
  readonly name: string;
  readonly parameters: readonly ValueType[];
  readonly results: readonly ValueType[];
  readonly body: (code: Code) => void;
}

/** A function imported as `math.<name>`. */
export type WasmImport = Pick<WasmFunction, "name" | "parameters" | "results">;

/** A page of WebAssembly memory. */
export const pageBytes = 64 * KiB;

/** Maximum number of pages of a 32-bit memory: 4 GiB. */
export const maximumPages = 65_536;

/** Writes one function's instructions. Each method appends one and returns the code, so that calls can be chained. */
export class Code {
  readonly #bytes: number[] = [];
  readonly #locals: ValueType[] = [];
  readonly #openLabels: Label[] = [];
  readonly #owner: WasmFunction;
  readonly #functionIndices: ReadonlyMap<string, number>;

  constructor(owner: WasmFunction, functionIndices: ReadonlyMap<string, number>) {
    this.#owner = owner;
    this.#functionIndices = functionIndices;
  }

  parameter(index: number): Local {
    const type = this.#owner.parameters[index];
    if (type === undefined) {
      throw this.#invalid(`has no parameter ${index}; it declares ${this.#owner.parameters.length}.`);
    }
    return { index, type };
  }

  local(type: ValueType): Local {
    this.#locals.push(type);
    return { index: this.#owner.parameters.length + this.#locals.length - 1, type };
  }

  op(name: StackOpcode): this {
    return this.#append(stackOpcodes[name]);
  }

  /** A load or store at the address on the stack plus `offset`. */
  memory(name: MemoryOpcode, offset = 0): this {
    const { code, alignment } = memoryOpcodes[name];
    return this.#append([...code, alignment, ...unsigned(offset)]);
  }

  lane(name: LaneOpcode, lane: number): this {
    return this.#append([...laneOpcodes[name], lane]);
  }

  /**
   * Shuffles two vectors of four 32-bit lanes on the stack into one. Lanes 0 to 3 are the first vector's, 4 to 7 the
   * second's.
   */
  shuffle(lanes: readonly [number, number, number, number]): this {
    return this.#append([
      ...shuffleOpcode,
      ...lanes.flatMap((lane) => [0, 1, 2, 3].map((i) => 4 * lane + i)),
    ]);
  }

  get(local: Local): this {
    return this.#append([structureOpcodes.localGet, ...unsigned(local.index)]);
  }

  set(local: Local): this {
    return this.#append([structureOpcodes.localSet, ...unsigned(local.index)]);
  }

  /** Sets the local and leaves the value on the stack. */
  tee(local: Local): this {
    return this.#append([structureOpcodes.localTee, ...unsigned(local.index)]);
  }

  i32(value: number): this {
    return this.#append([structureOpcodes.i32Const, ...signed(value | 0)]);
  }

  /** A whole number; beyond the range of i64 it saturates. */
  i64(value: number): this {
    return this.#append([structureOpcodes.i64Const, ...signed64(saturated(value))]);
  }

  f32(value: number): this {
    return this.#append([structureOpcodes.f32Const, ...new Uint8Array(new Float32Array([value]).buffer)]);
  }

  f64(value: number): this {
    return this.#append([structureOpcodes.f64Const, ...new Uint8Array(new Float64Array([value]).buffer)]);
  }

  call(name: string): this {
    const index = this.#functionIndices.get(name);
    if (index === undefined) throw this.#invalid(`calls "${name}", which its module does not contain.`);
    return this.#append([structureOpcodes.call, ...unsigned(index)]);
  }

  /** A branch to the label leaves the block. */
  block(body: (leave: Label) => void): this {
    return this.#enclose(structureOpcodes.block, body);
  }

  /** A branch to the label starts the next iteration; otherwise the loop ends. */
  loop(body: (next: Label) => void): this {
    return this.#enclose(structureOpcodes.loop, body);
  }

  /** Runs `then` if the i32 on the stack is not zero, else `otherwise`. */
  if(then: () => void, otherwise?: () => void): this {
    return this.#enclose(structureOpcodes.if, () => {
      then();
      if (otherwise) {
        this.#append([structureOpcodes.else]);
        otherwise();
      }
    });
  }

  branch(target: Label): this {
    return this.#append([structureOpcodes.br, ...unsigned(this.#distance(target))]);
  }

  /** Branches if the i32 on the stack is not zero. */
  branchIf(target: Label): this {
    return this.#append([structureOpcodes.brIf, ...unsigned(this.#distance(target))]);
  }

  /** Encodes the entry of the code section: size, locals, instructions. */
  encode(): number[] {
    // One entry per local: longer than run-length grouping, but every index stays as declared.
    const locals = vector(this.#locals.map((type) => [1, valueTypes[type]]));
    return sized([...locals, ...this.#bytes, structureOpcodes.end]);
  }

  #append(bytes: readonly number[]): this {
    for (const byte of bytes) this.#bytes.push(byte);
    return this;
  }

  #enclose(opcode: number, body: (label: Label) => void): this {
    const label = { depth: this.#openLabels.length };
    this.#append([opcode, emptyBlock]);
    this.#openLabels.push(label);
    body(label);
    this.#openLabels.pop();
    return this.#append([structureOpcodes.end]);
  }

  #distance(target: Label): number {
    if (this.#openLabels[target.depth] !== target) {
      throw this.#invalid("branches to a block that has ended; branch from inside its body only.");
    }
    return this.#openLabels.length - 1 - target.depth;
  }

  #invalid(problem: string): HoldfastError {
    return new HoldfastError("BAD_ARGUMENT", `WebAssembly function "${this.#owner.name}" ${problem}`);
  }
}

/**
 * Encodes a module of functions, each exported under its name. They may call each other and the imports.
 *
 * A module with one function that doubles its argument:
 *
 * ```js
 * const bytes = encodeModule([
 *   {
 *     name: "double",
 *     parameters: ["f32"],
 *     results: ["f32"],
 *     body: (code) => code.get(code.parameter(0)).get(code.parameter(0)).op("f32.add"),
 *   },
 * ]);
 * ```
 */
export function encodeModule(
  functions: readonly WasmFunction[],
  imports: readonly WasmImport[] = [],
): Uint8Array<ArrayBuffer> {
  // Imported functions are numbered before the module's functions, and every function has a separate type.
  const all = [...imports, ...functions];
  const names = [...imports.map(({ name }) => `math.${name}`), ...functions.map(({ name }) => name)];
  const indices = new Map(names.map((name, index) => [name, index]));
  const types = all.map((fn) => [0x60, ...typeVector(fn.parameters), ...typeVector(fn.results)]);
  const memory = [...text("env"), ...text("memory"), 0x02, sharedWithMaximum, ...unsigned(1)];
  const imported = imports.map(({ name }, index) => [
    ...text("math"),
    ...text(name),
    0x00,
    ...unsigned(index),
  ]);
  const exports = functions.map((fn, index) => [...text(fn.name), 0x00, ...unsigned(imports.length + index)]);
  const bodies = functions.map((fn) => {
    const code = new Code(fn, indices);
    fn.body(code);
    return code.encode();
  });
  return new Uint8Array([
    ...magicAndVersion,
    ...section(1, types),
    ...section(2, [[...memory, ...unsigned(maximumPages)], ...imported]),
    ...section(
      3,
      functions.map((_, index) => unsigned(imports.length + index)),
    ),
    ...section(7, exports),
    ...section(10, bodies),
  ]);
}

const magicAndVersion = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
const sharedWithMaximum = 0x03;

export function section(id: number, entries: readonly (readonly number[])[]): number[] {
  return [id, ...sized(vector(entries))];
}

export function sized(content: readonly number[]): number[] {
  return [...unsigned(content.length), ...content];
}

export function vector(entries: readonly (readonly number[])[]): number[] {
  // Not flat(), which takes a hundred times as long.
  return unsigned(entries.length).concat(...entries);
}

function typeVector(types: readonly ValueType[]): number[] {
  return vector(types.map((type) => [valueTypes[type]]));
}

export function text(value: string): number[] {
  return sized([...new TextEncoder().encode(value)]);
}

/**
 * Encodes a number from 0 to 2³² − 1 as LEB128: seven bits per byte, low bits first; the top bit marks that more
 * follow.
 */
export function unsigned(value: number): number[] {
  const bytes: number[] = [];
  let rest = value >>> 0;
  while (rest >= 0x80) {
    bytes.push((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  bytes.push(rest);
  return bytes;
}

/** Encodes a 32-bit number as signed LEB128. It ends when the remaining bits all equal bit 6 of the last byte. */
export function signed(value: number): number[] {
  const bytes: number[] = [];
  let rest = value | 0;
  for (;;) {
    const low = rest & 0x7f;
    rest >>= 7;
    const isLast = (rest === 0 && (low & 0x40) === 0) || (rest === -1 && (low & 0x40) !== 0);
    bytes.push(isLast ? low : low | 0x80);
    if (isLast) return bytes;
  }
}

function saturated(value: number): bigint {
  if (value >= 2 ** 63) return 2n ** 63n - 1n;
  return value <= -(2 ** 63) ? -(2n ** 63n) : BigInt(Math.trunc(value));
}

/** The same for a 64-bit number. */
function signed64(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (;;) {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    const isLast = (rest === 0n && (low & 0x40) === 0) || (rest === -1n && (low & 0x40) !== 0);
    bytes.push(isLast ? low : low | 0x80);
    if (isLast) return bytes;
  }
}
