/**
 * Recipes: what the lowering of an op came to, kept for the next call whose operands lie the same way. A step calls the
 * same ops with the same shapes again and again; working out its launches anew each time costs more than the launches.
 *
 * A recipe holds launches, fills and copies, with numbers for the storages: the operands' first, then the outputs', then
 * the scratch memory and the views that the lowering asked for. Whatever a lowering may decide by is in its key: dtypes,
 * shapes, strides, sizes and alignment in memory, which operands share a storage, and the attributes.
 */

import type { Kernel } from "../driver/index.js";
import type { Runtime, Storage, WorkPiece } from "../runtime/index.js";
import type { DeviceArray } from "./device-array.js";
import type { ValueType } from "./op.js";

/** A number for a storage, or a number that is passed as it is. */
type Slot = { readonly slot: number } | number;

type Piece =
  | {
      readonly kind: "launch";
      readonly op: string;
      readonly kernel: Kernel;
      readonly blocks: number;
      readonly arguments: readonly Slot[];
    }
  | { readonly kind: "fill"; readonly target: number; readonly byte: number }
  | { readonly kind: "copy"; readonly target: number; readonly source: number };

interface ViewSlot {
  readonly base: number;
  readonly offset: number;
  readonly size: number;
}

export interface Recipe {
  readonly types: readonly ValueType[];
  readonly scratch: readonly number[];
  readonly views: readonly ViewSlot[];
  readonly pieces: readonly Piece[];
}

/** What varies more than this is worked out anew each time, rather than kept. */
const mostRecipes = 512;

const books = new WeakMap<Runtime, Map<object, Map<string, Recipe>>>();

/** The recipes of an op on a device. */
export function recipesOf(runtime: Runtime, op: object): Map<string, Recipe> {
  let book = books.get(runtime);
  if (!book) {
    book = new Map();
    books.set(runtime, book);
  }
  let recipes = book.get(op);
  if (!recipes || recipes.size > mostRecipes) {
    recipes = new Map();
    book.set(op, recipes);
  }
  return recipes;
}

/** Everything that a lowering may decide by. */
export function keyOf(
  operands: readonly (DeviceArray | number)[],
  attributes: Readonly<Record<string, unknown>>,
): string {
  let key = "";
  for (let index = 0; index < operands.length; index++) {
    const operand = operands[index] as DeviceArray | number;
    key += typeof operand === "number" ? `#${operand};` : keyOfArray(operand, index, operands);
  }
  for (const name in attributes) key += `${name}=${textOf(attributes[name])};`;
  return key;
}

function keyOfArray(
  { dtype, shape, strides, storage }: DeviceArray,
  index: number,
  operands: readonly (DeviceArray | number)[],
): string {
  if (!storage) return `${dtype}${numberOf(shape)};`;
  const { address, size } = storage.span;
  let shared = 0;
  while (shared < index && (operands[shared] as DeviceArray).storage !== storage) shared++;
  const place = `${dtype}${numberOf(shape)},${numberOf(strides)},${size},${address & 255}`;
  return shared < index ? `${place}=${shared};` : `${place};`;
}

/**
 * A number for a list of numbers, the same for equal lists. Shapes and strides come out of recipes and views, so the very
 * same lists come again: looking one up by its identity is far cheaper than spelling it out. Only a frozen list stays what
 * it is.
 */
function numberOf(list: readonly number[]): number {
  const known = numbersByList.get(list);
  if (known !== undefined) return known;
  const text = list.join();
  const number = numbersByText.get(text) ?? numbersByText.size;
  if (numbersByText.size < mostLists) numbersByText.set(text, number);
  else if (!numbersByText.has(text)) return -1 - unlisted++;
  if (Object.isFrozen(list)) numbersByList.set(list, number);
  return number;
}

const mostLists = 1 << 16;
const numbersByText = new Map<string, number>();
const numbersByList = new WeakMap<readonly number[], number>();
/** Lists that came when the table was full: each has a number that never comes again. */
let unlisted = 0;

/** Everything that a view follows from. */
export function keyOfView(
  { dtype, shape, strides }: DeviceArray,
  attributes: Readonly<Record<string, unknown>>,
): string {
  let key = `${dtype}${numberOf(shape)},${numberOf(strides)};`;
  for (const name in attributes) key += `${name}=${textOf(attributes[name])};`;
  return key;
}

/** Lists of numbers are told apart from texts by nobody: attributes of one name have one type. */
function textOf(value: unknown): string {
  return Object.is(value, -0)
    ? "-0"
    : typeof value === "object" && value !== null
      ? listText(value)
      : String(value);
}

function listText(value: object): string {
  if (isNumbers(value)) return `[${numberOf(value)}]`;
  return Array.isArray(value)
    ? `[${value.map(textOf).join(",")}]`
    : `{${Object.entries(value).map(([name, one]) => `${name}:${textOf(one)}`)}}`;
}

function isNumbers(value: object): value is readonly number[] {
  return Array.isArray(value) && value.every((one) => typeof one === "number" && !Object.is(one, -0));
}

/** Writes a recipe down while a lowering is at work. */
export class RecipeWriter {
  readonly #slots = new Map<Storage, number>();
  readonly #scratch: number[] = [];
  readonly #views: ViewSlot[] = [];
  readonly #pieces: Piece[] = [];
  readonly #late: { readonly storage: Storage; readonly view?: ViewSlot }[] = [];
  #isWhole = true;

  constructor(operands: readonly (DeviceArray | number)[], outputs: readonly DeviceArray[]) {
    // Two operands in one storage stand for it under the first one's number; the key tells such calls apart.
    let slot = 0;
    for (const one of [...operands, ...outputs]) {
      const storage = typeof one === "number" ? undefined : one.storage;
      if (storage && !this.#slots.has(storage)) this.#slots.set(storage, slot);
      slot++;
    }
    this.#next = slot;
  }

  #next: number;

  noteScratch(storage: Storage): void {
    this.#slots.set(storage, this.#next++);
    this.#late.push({ storage });
  }

  noteView(view: Storage, base: Storage, offset: number): void {
    const from = this.#slots.get(base);
    if (from === undefined) {
      this.#isWhole = false;
      return;
    }
    this.#slots.set(view, this.#next++);
    this.#late.push({ storage: view, view: { base: from, offset, size: view.span.size } });
  }

  noteWork(piece: WorkPiece): void {
    if (piece.kind === "launch") {
      const { op, kernel, blocks, arguments: given, stream } = piece.request;
      if (stream) this.#isWhole = false;
      const slots = given.map((one): Slot => (typeof one === "number" ? one : { slot: this.#slotOf(one) }));
      this.#pieces.push({ kind: "launch", op, kernel, blocks, arguments: slots });
    } else if (piece.kind === "fill") {
      this.#pieces.push({ kind: "fill", target: this.#slotOf(piece.target), byte: piece.byte });
    } else {
      const [target, source] = [this.#slotOf(piece.target), this.#slotOf(piece.source)];
      this.#pieces.push({ kind: "copy", target, source });
    }
  }

  /** The recipe; nothing where the lowering used a storage that a later call could not know. */
  finish(types: readonly ValueType[]): Recipe | undefined {
    if (!this.#isWhole) return undefined;
    for (const { storage, view } of this.#late) {
      if (view) this.#views.push(view);
      // Scratch memory is made before views, so numbers follow only where they were asked for in that order.
      else if (this.#views.length > 0) return undefined;
      else this.#scratch.push(storage.span.size);
    }
    const lasting = types.map(({ shape, dtype }) => ({ shape: Object.freeze([...shape]), dtype }));
    return { types: lasting, scratch: this.#scratch, views: this.#views, pieces: this.#pieces };
  }

  #slotOf(storage: Storage): number {
    const slot = this.#slots.get(storage);
    if (slot === undefined) this.#isWhole = false;
    return slot ?? 0;
  }
}

/** Does again what a recipe says, on other storages. Scratch memory and views end with it. */
export function followRecipe(
  runtime: Runtime,
  op: string,
  { scratch, views, pieces }: Recipe,
  storages: (Storage | undefined)[],
): void {
  const before = storages.length;
  const { arena } = runtime;
  try {
    for (const size of scratch) storages.push(arena.allocate(size, `${op} scratch`));
    for (const { base, offset, size } of views) {
      storages.push(runtime.view(storages[base] as Storage, offset, size, op));
    }
    for (const piece of pieces) {
      if (piece.kind === "launch") {
        const { kernel, blocks } = piece;
        const values = piece.arguments.map((one) =>
          typeof one === "number" ? one : (storages[one.slot] as Storage),
        );
        runtime.launch({ op: piece.op, kernel, blocks, arguments: values });
      } else if (piece.kind === "fill") runtime.fill(storages[piece.target] as Storage, piece.byte);
      else runtime.copy(storages[piece.target] as Storage, storages[piece.source] as Storage);
    }
  } finally {
    const made = storages.slice(before);
    for (const storage of made.slice(scratch.length)) if (storage?.kind === "step") arena.dropView(storage);
    for (const storage of made.slice(0, scratch.length)) if (storage) arena.free(storage);
  }
}
