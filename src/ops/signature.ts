/**
 * Signatures: everything that a lowering or a view depends on, as a list of numbers, and tables with signatures as keys. Every call of
 * every op computes one, so a lookup that succeeds allocates nothing.
 */

import { type Dtype, dtypeNames } from "../ir/index.js";
import type { DeviceArray } from "./device-array.js";

type Operand = DeviceArray | number;

/** The current signature: its first `length` numbers. */
const current: number[] = new Array<number>(256).fill(0.5);
let length = 0;

const dtypeNumbers = Object.fromEntries(dtypeNames.map((name, index) => [name, index])) as Record<
  Dtype,
  number
>;

/** Numbers for strings, booleans and other atoms. */
const atomIds = new Map<unknown, number>();

function atomId(atom: unknown): number {
  const existing = atomIds.get(atom);
  if (existing !== undefined) return existing;
  const id = atomIds.size;
  atomIds.set(atom, id);
  return id;
}

function push(value: number): void {
  current[length++] = value;
}

function pushAll(values: readonly number[]): void {
  current[length++] = values.length;
  for (let index = 0; index < values.length; index++) current[length++] = values[index] as number;
}

/** Dtype, shape, strides, size in memory, alignment, and the first operand with the same address. */
function pushOperand(operands: readonly Operand[], index: number): void {
  const operand = operands[index] as Operand;
  if (typeof operand === "number") {
    push(-1);
    push(operand);
    return;
  }
  const { dtype, shape, strides, storage } = operand;
  push(dtypeNumbers[dtype]);
  pushAll(shape);
  if (!storage) {
    push(-1);
    return;
  }
  pushAll(strides);
  const { address, size } = storage.span;
  push(size);
  push(address & 255);
  // Compared by address: two views of the same bytes are two storages, but the same memory for an in-place lowering.
  let shared = 0;
  while (shared < index && (operands[shared] as DeviceArray).storage?.span.address !== address) shared++;
  push(shared);
}

/** A tag before every value, so that different values never have equal signatures: an atom's id and a number, two lists and one. */
const kinds = { number: 0, list: 1, record: 2, atom: 3 } as const;

function pushValue(value: unknown): void {
  if (typeof value === "number") {
    push(kinds.number);
    push(value);
  } else if (Array.isArray(value)) {
    push(kinds.list);
    push(value.length);
    for (const element of value) pushValue(element);
  } else if (typeof value === "object" && value !== null) {
    push(kinds.record);
    pushAttributes(value as Readonly<Record<string, unknown>>);
  } else {
    push(kinds.atom);
    push(atomId(value));
  }
}

/** Ids of names are 0 or more, so -2 marks the end. */
function pushAttributes(attributes: Readonly<Record<string, unknown>>): void {
  for (const name in attributes) {
    push(atomId(name));
    pushValue(attributes[name]);
  }
  push(-2);
}

export interface CallSignatureOptions {
  /** The target of an in-place call. */
  readonly target?: DeviceArray;
  /** True if the lowering depends on the addresses of persistent operands. */
  readonly withAddresses: boolean;
}

/** Writes the signature of a call of a kernel op. */
export function writeCallSignature(
  operands: readonly Operand[],
  attributes: Readonly<Record<string, unknown>>,
  { target, withAddresses }: CallSignatureOptions,
): void {
  length = 0;
  const arrays = target ? [...operands, target] : operands;
  push(target ? -1 - arrays.length : arrays.length);
  for (let index = 0; index < arrays.length; index++) pushOperand(arrays, index);
  pushAttributes(attributes);
  if (!withAddresses) return;
  for (const operand of arrays) {
    const storage = typeof operand === "number" ? undefined : operand.storage;
    push(storage?.kind === "persistent" ? storage.span.address : -1);
  }
}

/** Writes the signature of a view. */
export function writeViewSignature(
  { dtype, shape, strides }: DeviceArray,
  attributes: Readonly<Record<string, unknown>>,
): void {
  length = 0;
  push(dtypeNumbers[dtype]);
  pushAll(shape);
  pushAll(strides);
  pushAttributes(attributes);
}

interface Entry<T> {
  readonly signature: readonly number[];
  readonly value: T;
}

/** A table with more entries is cleared. */
const maxEntries = 512;

/** A table with signatures as keys. */
export class SignatureTable<T> {
  readonly #entries = new Map<number, Entry<T>[]>();
  #size = 0;

  /** The value under the current signature. */
  find(): T | undefined {
    const entries = this.#entries.get(hashCurrent());
    if (entries) for (const entry of entries) if (isCurrent(entry.signature)) return entry.value;
    return undefined;
  }

  /** Returns a function that stores a value under the current signature, which it keeps. */
  reserve(): (value: T) => void {
    const signature = current.slice(0, length);
    const hash = hashCurrent();
    return (value) => {
      if (this.#size >= maxEntries) {
        this.#entries.clear();
        this.#size = 0;
      }
      const entries = this.#entries.get(hash) ?? [];
      // The newest entry comes first, so an entry that is no longer usable is never found again.
      entries.unshift({ signature, value });
      this.#entries.set(hash, entries);
      this.#size += 1;
    };
  }
}

function hashCurrent(): number {
  let hash = length;
  for (let index = 0; index < length; index++) {
    const value = current[index] as number;
    // Fractions and large sizes count by their low bits too.
    hash = Math.imul(hash ^ (value | 0) ^ ((value * 65537) | 0), 0x9e3779b1);
    hash ^= hash >>> 15;
  }
  return hash;
}

function isCurrent(signature: readonly number[]): boolean {
  if (signature.length !== length) return false;
  for (let index = 0; index < length; index++) {
    if (!Object.is(signature[index], current[index])) return false;
  }
  return true;
}
