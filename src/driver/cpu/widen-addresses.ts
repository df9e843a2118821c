/**
 * Rewrites a module of `encodeModule` for a memory with 64-bit addresses. Kernels are written for 32-bit addresses, and only for those:
 * from the parameters that are addresses, this file finds all values that are addresses, and gives them 64 bits. Other numbers are the
 * same as before, so the results have the same bits.
 *
 * An offset that is added to an address is sign-extended. So a kernel reaches 2 GiB on either side of an address. An address in any
 * other computation is an error: its high bits would be lost.
 */

import { HoldfastError } from "../../errors/index.js";
import { maximumBytes64 } from "./memory64.js";
import { pageBytes, section, sized, text, unsigned, vector } from "./wasm.js";
import { decodeModule, type FunctionType, type Instruction, type ModuleFunction } from "./wasm-decoder.js";
import { structureOpcodes, valueTypes } from "./wasm-opcodes.js";

/** The bytes that a kernel can reach from the address of an argument. */
export const maxWideSpan = 2 ** 31;

/** The parameters of one exported function that are addresses. Callers pass them as numbers, so its type has f64 there. */
export interface AddressParameters {
  readonly name: string;
  readonly addresses: readonly number[];
}

export function widenAddresses(
  module: Uint8Array<ArrayBuffer>,
  { name: entryName, addresses }: AddressParameters,
): Uint8Array<ArrayBuffer> {
  const { imports, functions } = decodeModule(module);
  const functionByIndex = (index: number): ModuleFunction | undefined => functions[index - imports.length];
  /** Locals that are addresses, by function. */
  const wide = new Map(functions.map((fn) => [fn, new Set<number>()]));
  const entry = functions.find(({ name }) => name === entryName);
  if (!entry) throw failed(entryName, "the module does not export it");
  for (const index of addresses) wide.get(entry)?.add(index);
  /** The entry's address parameters are copied to 64-bit locals, which follow all others. */
  const localCount = entry.parameters.length + entry.locals.length;
  const entryLocals = new Map(addresses.map((index, at) => [index, localCount + at]));

  const bodies = new Map<ModuleFunction, number[]>();
  for (let before = -1; before !== countAll(wide); ) {
    before = countAll(wide);
    for (const fn of functions) bodies.set(fn, widenBody(fn));
  }

  function widenBody(fn: ModuleFunction): number[] {
    const locals = wide.get(fn) as Set<number>;
    const moved = fn === entry ? entryLocals : new Map<number, number>();
    return new BodyWriter(fn, locals, moved, (index) => {
      const callee = functionByIndex(index);
      const parameters = (callee ?? imports[index])?.parameters ?? [];
      const results = (callee ?? imports[index])?.results ?? [];
      return { parameters, results, wide: callee && wide.get(callee) };
    }).write();
  }

  const typeOf = (fn: ModuleFunction, index: number, type: number): number => {
    if (!wide.get(fn)?.has(index)) return type;
    return fn === entry && index < fn.parameters.length ? valueTypes.f64 : valueTypes.i64;
  };
  const types = [
    ...imports.map(encodeType),
    ...functions.map((fn) => {
      const parameters = fn.parameters.map((type, index) => typeOf(fn, index, type));
      return encodeType({ ...fn, parameters });
    }),
  ];
  const code = functions.map((fn) => {
    const first = fn.parameters.length;
    const declared = fn.locals.map((type, index) => typeOf(fn, first + index, type));
    const copies = fn === entry ? [...entryLocals.values()].map(() => valueTypes.i64) : [];
    const locals = vector([...declared, ...copies].map((type) => [1, type]));
    const prologue =
      fn === entry
        ? [...entryLocals].flatMap(([from, to]) => [
            ...[structureOpcodes.localGet, ...unsigned(from), ...truncate],
            ...[structureOpcodes.localSet, ...unsigned(to)],
          ])
        : [];
    return sized([...locals, ...prologue, ...(bodies.get(fn) ?? [])]);
  });
  const memory = [...text("env"), ...text("memory"), 0x02, wideSharedWithMaximum, ...unsigned(1)];
  const importedFunctions = imports.map(({ name }, index) => [
    ...[...text("math"), ...text(name), 0x00, ...unsigned(index)],
  ]);
  return new Uint8Array([
    ...module.subarray(0, 8),
    ...section(1, types),
    ...section(2, [[...memory, ...unsigned(maximumBytes64 / pageBytes)], ...importedFunctions]),
    ...section(
      3,
      functions.map((_, index) => unsigned(imports.length + index)),
    ),
    ...section(
      7,
      functions.map((fn, index) => [...text(fn.name), 0x00, ...unsigned(imports.length + index)]),
    ),
    ...section(10, code),
  ]);
}

const wideSharedWithMaximum = 0x07;
const truncate = [0xb1];
const extend = [0xac];
const wrap = [0xa7];

/** The 64-bit forms of instructions that take addresses. All others take no address. */
const wideForms: Readonly<Record<string, { readonly code: number; readonly result: "address" | "number" }>> =
  {
    "i32.add": { code: 0x7c, result: "address" },
    "i32.sub": { code: 0x7d, result: "address" },
    "i32.eq": { code: 0x51, result: "number" },
    "i32.ne": { code: 0x52, result: "number" },
    "i32.lt_u": { code: 0x54, result: "number" },
    "i32.gt_u": { code: 0x56, result: "number" },
    "i32.le_u": { code: 0x58, result: "number" },
    "i32.ge_u": { code: 0x5a, result: "number" },
  };

/** A value on the stack, and the number of instructions written when it was complete. */
interface Value {
  readonly isAddress: boolean;
  readonly end: number;
}

interface Callee {
  readonly parameters: readonly number[];
  readonly results: readonly number[];
  /** Its locals that are addresses. Undefined for an import. */
  readonly wide: Set<number> | undefined;
}

/** Writes one function, and adds to the sets of address locals what it finds. */
class BodyWriter {
  readonly #fn: ModuleFunction;
  readonly #wide: Set<number>;
  /** Locals that another one stands for. */
  readonly #moved: ReadonlyMap<number, number>;
  readonly #callee: (index: number) => Callee;
  readonly #written: number[][] = [];
  readonly #stack: Value[] = [];
  /** The height of the stack at the start of each open block. */
  readonly #blocks: number[] = [];

  constructor(
    fn: ModuleFunction,
    wide: Set<number>,
    moved: ReadonlyMap<number, number>,
    callee: (index: number) => Callee,
  ) {
    this.#fn = fn;
    this.#wide = wide;
    this.#moved = moved;
    this.#callee = callee;
  }

  write(): number[] {
    for (const instruction of this.#fn.body) this.#writeOne(instruction);
    return this.#written.flat();
  }

  #writeOne(instruction: Instruction): void {
    const { name, kind, bytes } = instruction;
    switch (kind) {
      case "block":
        if (name === "if") this.#popNumber(instruction);
        this.#blocks.push(this.#stack.length);
        this.#written.push([...bytes]);
        return;
      case "else":
      case "end":
        this.#stack.length = (kind === "end" ? this.#blocks.pop() : this.#blocks.at(-1)) ?? 0;
        this.#written.push([...bytes]);
        return;
      case "branch":
        if (name === "br_if") this.#popNumber(instruction);
        this.#written.push([...bytes]);
        return;
      case "local":
        this.#writeLocal(instruction);
        return;
      case "call":
        this.#writeCall(instruction);
        return;
      case "load":
        this.#toAddress(this.#pop());
        this.#push(bytes, false);
        return;
      case "store":
        this.#popNumber(instruction);
        this.#toAddress(this.#pop());
        this.#written.push([...bytes]);
        return;
      default:
        this.#writeOperation(instruction);
    }
  }

  #writeLocal({ name, index }: Instruction): void {
    const encode = (opcode: number): number[] => [opcode, ...unsigned(this.#moved.get(index) ?? index)];
    if (name === "local.get") {
      this.#push(encode(structureOpcodes.localGet), this.#wide.has(index));
      return;
    }
    const value = this.#pop();
    if (value.isAddress) this.#wide.add(index);
    else if (this.#wide.has(index)) this.#toAddress(value);
    if (name === "local.set") this.#written.push(encode(structureOpcodes.localSet));
    else this.#push(encode(structureOpcodes.localTee), this.#wide.has(index));
  }

  #writeCall({ index, bytes }: Instruction): void {
    const { parameters, results, wide } = this.#callee(index);
    for (let parameter = parameters.length - 1; parameter >= 0; parameter--) {
      const value = this.#pop();
      if (value.isAddress && !wide) throw failed(this.#fn.name, "it passes an address to the host");
      if (value.isAddress) wide?.add(parameter);
      else if (wide?.has(parameter)) this.#toAddress(value);
    }
    this.#written.push([...bytes]);
    for (const _ of results) this.#stack.push({ isAddress: false, end: this.#written.length });
  }

  #writeOperation(instruction: Instruction): void {
    const { name, bytes, pops, pushes } = instruction;
    if (name === "memory.fill" || name === "memory.copy") {
      // Address, byte or address, and the size, which is an address's type.
      this.#toAddress(this.#pop());
      if (name === "memory.fill") this.#popNumber(instruction);
      else this.#toAddress(this.#pop());
      this.#toAddress(this.#pop());
      this.#written.push([...bytes]);
      return;
    }
    if (name === "select") {
      this.#popNumber(instruction);
      const operands = [this.#pop(), this.#pop()];
      const isAddress = operands.some((operand) => operand.isAddress);
      if (isAddress) for (const operand of operands) this.#toAddress(operand);
      this.#push(bytes, isAddress);
      return;
    }
    const operands = Array.from({ length: pops }, () => this.#pop());
    const isWide = operands.some((operand) => operand.isAddress);
    if (!isWide || name === "drop") {
      if (pushes > 0) this.#push(bytes, false);
      else this.#written.push([...bytes]);
      return;
    }
    const form = wideForms[name];
    if (!form) throw failed(this.#fn.name, `it computes ${name} of an address`);
    const isDifference = name === "i32.sub" && operands.every((operand) => operand.isAddress);
    if (name === "i32.sub" && operands[0]?.isAddress && !operands[1]?.isAddress)
      throw failed(this.#fn.name, "it subtracts an address from a number");
    for (const operand of operands) this.#toAddress(operand);
    if (isDifference) this.#push([form.code, ...wrap], false);
    else this.#push([form.code], form.result === "address");
  }

  #push(bytes: readonly number[], isAddress: boolean): void {
    this.#written.push([...bytes]);
    this.#stack.push({ isAddress, end: this.#written.length });
  }

  #pop(): Value {
    const value = this.#stack.pop();
    if (!value) throw failed(this.#fn.name, "its stack is empty");
    return value;
  }

  #popNumber({ name }: Instruction): void {
    if (this.#pop().isAddress) throw failed(this.#fn.name, `${name} takes an address as a number`);
  }

  /** Extends a number, right after the instruction that pushed it. */
  #toAddress({ isAddress, end }: Value): void {
    if (!isAddress) this.#written[end - 1]?.push(...extend);
  }
}

function encodeType({ parameters, results }: Pick<FunctionType, "parameters" | "results">): number[] {
  const encode = (types: readonly number[]): number[] => vector(types.map((type) => [type]));
  return [0x60, ...encode(parameters), ...encode(results)];
}

function countAll(sets: ReadonlyMap<unknown, ReadonlySet<number>>): number {
  let count = 0;
  for (const set of sets.values()) count += set.size;
  return count;
}

function failed(name: string, why: string): HoldfastError {
  const message = `WebAssembly function "${name}" cannot be rewritten for 64-bit addresses: ${why}.`;
  return new HoldfastError("KERNEL_FAILED", message, { numbers: { function: name } });
}
