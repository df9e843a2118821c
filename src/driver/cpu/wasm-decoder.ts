/** Decodes the modules that `encodeModule` writes: their functions, instruction by instruction. */

import { laneOpcodes, memoryOpcodes, shuffleOpcode, stackOpcodes } from "./wasm-opcodes.js";

export interface Instruction {
  /** The name in the text format. */
  readonly name: string;
  readonly kind: "block" | "else" | "end" | "branch" | "local" | "call" | "load" | "store" | "operation";
  /** The whole encoding. */
  readonly bytes: readonly number[];
  /** The local or function that it names. */
  readonly index: number;
  /** Operands and results of an operation. */
  readonly pops: number;
  readonly pushes: number;
}

export interface FunctionType {
  readonly name: string;
  readonly parameters: readonly number[];
  readonly results: readonly number[];
}

export interface ModuleFunction extends FunctionType {
  readonly locals: readonly number[];
  readonly body: readonly Instruction[];
}

export interface DecodedModule {
  readonly imports: readonly FunctionType[];
  readonly functions: readonly ModuleFunction[];
}

type Types = Pick<FunctionType, "parameters" | "results">;
type Body = Pick<ModuleFunction, "locals" | "body">;

const sectionIds = { types: 1, imports: 2, exports: 7, code: 10 } as const;
const headerBytes = 8;

export function decodeModule(module: Uint8Array): DecodedModule {
  const reader = new Reader(module);
  reader.skip(headerBytes);
  let types: Types[] = [];
  let imports: string[] = [];
  let exports: string[] = [];
  let bodies: Body[] = [];
  while (!reader.isAtEnd) {
    const id = reader.byte();
    const size = reader.number();
    if (id === sectionIds.types) types = reader.vector(() => readType(reader));
    else if (id === sectionIds.imports) imports = reader.vector(() => readImport(reader)).slice(1);
    else if (id === sectionIds.exports) exports = reader.vector(() => readExport(reader));
    else if (id === sectionIds.code) bodies = reader.vector(() => readBody(reader));
    else reader.skip(size);
  }
  // Every function has a separate type, those of the imports first.
  const typeAt = (index: number): Types => types[index] ?? { parameters: [], results: [] };
  return {
    imports: imports.map((name, index) => ({ name, ...typeAt(index) })),
    functions: bodies.map((body, index) => ({
      ...{ name: exports[index] ?? "", ...typeAt(imports.length + index), ...body },
    })),
  };
}

function readType(reader: Reader): Types {
  reader.skip(1);
  const values = (): number[] => reader.vector(() => reader.byte());
  return { parameters: values(), results: values() };
}

/** The first import is the memory. */
function readImport(reader: Reader): string {
  reader.text();
  const name = reader.text();
  const isMemory = reader.byte() === 0x02;
  if (isMemory) reader.skip(1);
  for (let numbers = isMemory ? 2 : 1; numbers > 0; numbers--) reader.number();
  return name;
}

function readExport(reader: Reader): string {
  const name = reader.text();
  reader.skip(1);
  reader.number();
  return name;
}

function readBody(reader: Reader): Body {
  const end = reader.number() + reader.at;
  const locals = reader.vector(() => {
    reader.skip(1);
    return reader.byte();
  });
  const body: Instruction[] = [];
  while (reader.at < end) body.push(readInstruction(reader));
  return { locals, body };
}

type Form = Pick<Instruction, "name" | "kind" | "pops" | "pushes"> & {
  /** The bytes after the opcode: LEB128 numbers first, then others. */
  readonly numbers: number;
  readonly bytes: number;
};

function readInstruction(reader: Reader): Instruction {
  const start = reader.at;
  const first = reader.byte();
  const key = isPrefix(first) ? `${first} ${reader.number()}` : `${first}`;
  forms ??= new Map(listForms());
  const form = forms.get(key);
  if (!form) throw new Error(`unknown WebAssembly opcode ${key}`);
  const { name, kind, pops, pushes, numbers, bytes } = form;
  let index = 0;
  for (let count = numbers; count > 0; count--) index = reader.number();
  reader.skip(bytes);
  return { name, kind, pops, pushes, index, bytes: reader.bytesSince(start) };
}

/** SIMD and bulk memory. */
function isPrefix(byte: number): boolean {
  return byte === 0xfd || byte === 0xfc;
}

/** Made at the first use: most devices have 32-bit addresses. */
let forms: ReadonlyMap<string, Form> | undefined;

function* listForms(): Generator<[string, Form]> {
  const plain = { kind: "operation", pops: 0, pushes: 0, numbers: 0, bytes: 0 } as const;
  for (const [name, code] of Object.entries(stackOpcodes)) {
    const memories = name === "memory.copy" ? 2 : name === "memory.fill" ? 1 : 0;
    const pushes = /^(drop|return|unreachable|memory\.)/.test(name) ? 0 : 1;
    yield [keyOf(code), { ...plain, name, pops: countOperands(name), pushes, bytes: memories }];
  }
  for (const [name, { code }] of Object.entries(memoryOpcodes))
    yield [keyOf(code), { ...plain, name, kind: name.includes("store") ? "store" : "load", numbers: 2 }];
  for (const [name, code] of Object.entries(laneOpcodes))
    yield [keyOf(code), { ...plain, name, pops: countOperands(name), pushes: 1, bytes: 1 }];
  yield [keyOf(shuffleOpcode), { ...plain, name: "i8x16.shuffle", pops: 2, pushes: 1, bytes: 16 }];
  for (const [code, name] of [
    [0x02, "block"],
    [0x03, "loop"],
    [0x04, "if"],
  ] as const)
    yield [`${code}`, { ...plain, name, kind: "block", bytes: 1 }];
  yield ["5", { ...plain, name: "else", kind: "else" }];
  yield ["11", { ...plain, name: "end", kind: "end" }];
  yield ["12", { ...plain, name: "br", kind: "branch", numbers: 1 }];
  yield ["13", { ...plain, name: "br_if", kind: "branch", numbers: 1 }];
  yield ["16", { ...plain, name: "call", kind: "call", numbers: 1 }];
  for (const [code, name] of [
    [0x20, "local.get"],
    [0x21, "local.set"],
    [0x22, "local.tee"],
  ] as const)
    yield [`${code}`, { ...plain, name, kind: "local", numbers: 1 }];
  yield ["65", { ...plain, name: "i32.const", pushes: 1, numbers: 1 }];
  yield ["66", { ...plain, name: "i64.const", pushes: 1, numbers: 1 }];
  yield ["67", { ...plain, name: "f32.const", pushes: 1, bytes: 4 }];
  yield ["68", { ...plain, name: "f64.const", pushes: 1, bytes: 8 }];
}

function keyOf([first = 0, ...rest]: readonly number[]): string {
  return isPrefix(first) ? `${first} ${new Reader(Uint8Array.from(rest)).number()}` : `${first}`;
}

const threeOperands = /^(select|v128\.bitselect|memory\.)|relaxed_madd$/;
const oneOperand =
  /^drop$|\.(eqz|abs|neg|ceil|floor|trunc|nearest|sqrt|splat|not|any_true|all_true|extract_lane)$|\.(extend|wrap|convert|demote|promote|reinterpret|trunc_sat)_/;

function countOperands(name: string): number {
  if (name === "return" || name === "unreachable") return 0;
  if (threeOperands.test(name)) return 3;
  return oneOperand.test(name) ? 1 : 2;
}

class Reader {
  at = 0;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.at >= this.#bytes.length;
  }

  skip(count: number): void {
    this.at += count;
  }

  byte(): number {
    return this.#bytes[this.at++] ?? 0;
  }

  /** An unsigned LEB128 number; of a signed one only the length is right. */
  number(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 0x80) {
      const byte = this.byte();
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  }

  vector<T>(read: () => T): T[] {
    return Array.from({ length: this.number() }, read);
  }

  text(): string {
    const end = this.number() + this.at;
    const bytes = this.#bytes.subarray(this.at, end);
    this.at = end;
    return new TextDecoder().decode(bytes);
  }

  bytesSince(start: number): number[] {
    return [...this.#bytes.subarray(start, this.at)];
  }
}
