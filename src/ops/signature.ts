/**
 * Signatures: everything that a lowering or a view may decide by, as a list of numbers, and the tables that find what is
 * kept under them. They are made for every call of every op, so nothing is allocated for one that is known.
 */

import { type Dtype, dtypeNames } from "../ir/index.js";
import type { DeviceArray } from "./device-array.js";

type Operand = DeviceArray | number;

/** The signature that is being made; `length` of its numbers count. */
const made: number[] = new Array<number>(256).fill(0.5);
let length = 0;

const dtypeNumbers = Object.fromEntries(dtypeNames.map((name, index) => [name, index])) as Record<
  Dtype,
  number
>;

/** Texts, truth values and the like as numbers. */
const numbersOfWords = new Map<unknown, number>();

function numberOf(word: unknown): number {
  const known = numbersOfWords.get(word);
  if (known !== undefined) return known;
  const number = numbersOfWords.size;
  numbersOfWords.set(word, number);
  return number;
}

function push(value: number): void {
  made[length++] = value;
}

function pushAll(values: readonly number[]): void {
  made[length++] = values.length;
  for (let index = 0; index < values.length; index++) made[length++] = values[index] as number;
}

/** Dtype, shape and strides, and where in memory: its size, its alignment, and which earlier operand begins there too. */
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
  // By address: two views of the same bytes are two storages, and a lowering that writes in place sees no difference.
  let shared = 0;
  while (shared < index && (operands[shared] as DeviceArray).storage?.span.address !== address) shared++;
  push(shared);
}

/** Before every value, so that none is taken for another: a word's number for a number, two lists for one. */
const kinds = { number: 0, list: 1, record: 2, word: 3 } as const;

function pushValue(value: unknown): void {
  if (typeof value === "number") {
    push(kinds.number);
    push(value);
  } else if (Array.isArray(value)) {
    push(kinds.list);
    push(value.length);
    for (const one of value) pushValue(one);
  } else if (typeof value === "object" && value !== null) {
    push(kinds.record);
    pushAttributes(value as Readonly<Record<string, unknown>>);
  } else {
    push(kinds.word);
    push(numberOf(value));
  }
}

/** Names are numbers from 0 on, so -2 is the end. */
function pushAttributes(attributes: Readonly<Record<string, unknown>>): void {
  for (const name in attributes) {
    push(numberOf(name));
    pushValue(attributes[name]);
  }
  push(-2);
}

export interface CallFacts {
  /** Where the result is to stand, if not in memory of its own. */
  readonly target?: DeviceArray;
  /** Does the lowering look at where operands lie to each other? */
  readonly withAddresses: boolean;
}

/** What a call of a kernel op follows from. */
export function signCall(
  operands: readonly Operand[],
  attributes: Readonly<Record<string, unknown>>,
  { target, withAddresses }: CallFacts,
): void {
  length = 0;
  const all = target ? [...operands, target] : operands;
  push(target ? -1 - all.length : all.length);
  for (let index = 0; index < all.length; index++) pushOperand(all, index);
  pushAttributes(attributes);
  if (!withAddresses) return;
  for (const operand of all) {
    const storage = typeof operand === "number" ? undefined : operand.storage;
    push(storage?.kind === "persistent" ? storage.span.address : -1);
  }
}

/** What a view follows from. */
export function signView(
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

/** What varies more than this is worked out anew, rather than kept. */
const maxEntries = 512;

/** Things kept by signature. */
export class SignatureTable<T> {
  readonly #entries = new Map<number, Entry<T>[]>();
  #size = 0;

  /** What is kept under the signature just made. */
  find(): T | undefined {
    const entries = this.#entries.get(hashOfMade());
    if (entries) for (const entry of entries) if (isMade(entry.signature)) return entry.value;
    return undefined;
  }

  /** A place under the signature just made, for something that has yet to be worked out. */
  reserve(): (value: T) => void {
    const signature = made.slice(0, length);
    const hash = hashOfMade();
    return (value) => {
      if (this.#size >= maxEntries) {
        this.#entries.clear();
        this.#size = 0;
      }
      const entries = this.#entries.get(hash) ?? [];
      // The newest comes first: one that can't be used any more is never found again.
      entries.unshift({ signature, value });
      this.#entries.set(hash, entries);
      this.#size += 1;
    };
  }
}

function hashOfMade(): number {
  let hash = length;
  for (let index = 0; index < length; index++) {
    const value = made[index] as number;
    // Fractions and large sizes count by their low bits too.
    hash = Math.imul(hash ^ (value | 0) ^ ((value * 65537) | 0), 0x9e3779b1);
    hash ^= hash >>> 15;
  }
  return hash;
}

function isMade(signature: readonly number[]): boolean {
  if (signature.length !== length) return false;
  for (let index = 0; index < length; index++) {
    if (!Object.is(signature[index], made[index])) return false;
  }
  return true;
}
