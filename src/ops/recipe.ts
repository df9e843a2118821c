/**
 * Recipes: what the lowering of an op came to, kept for the next call whose operands lie the same way. A step calls the
 * same ops with the same shapes again and again; working out its launches anew each time costs more than the launches.
 *
 * A recipe holds launches, fills and copies, with numbers for the storages: the operands' first, then the outputs', then
 * the scratch memory and the views that the lowering asked for. It is kept under the call's signature: dtypes, shapes,
 * strides, sizes and alignment in memory, which operands share a storage, and the attributes.
 */

import type { Kernel } from "../driver/index.js";
import type { Runtime, Storage, WorkPiece } from "../runtime/index.js";
import type { DeviceArray } from "./device-array.js";
import type { ValueType } from "./op.js";
import { SignatureTable } from "./signature.js";

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

const books = new WeakMap<Runtime, Map<object, SignatureTable<Recipe>>>();

/** The recipes of an op on a device. */
export function recipesOf(runtime: Runtime, op: object): SignatureTable<Recipe> {
  let book = books.get(runtime);
  if (!book) {
    book = new Map();
    books.set(runtime, book);
  }
  let recipes = book.get(op);
  if (!recipes) {
    recipes = new SignatureTable();
    book.set(op, recipes);
  }
  return recipes;
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
    // A caller's own list may change; these stay.
    const lasting = types.map(({ shape, dtype }) => ({ shape: [...shape], dtype }));
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
