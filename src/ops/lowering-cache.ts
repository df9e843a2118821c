/**
 * Recipes: what the lowering of an op came to, kept for the next call whose operands lie the same way. A step calls the
 * same ops with the same shapes again and again; working out its launches anew each time costs more than the launches.
 *
 * A recipe holds launches, fills and copies, with numbers for the storages: the operands' first, then the outputs', then
 * the scratch memory and the views that the lowering asked for. It is kept under the call's signature: dtypes, shapes,
 * strides, sizes and alignment in memory, which operands share a storage, and the attributes.
 */

import type { Kernel } from "../driver/index.js";
import type { Runtime, Storage, WorkCommand } from "../runtime/index.js";
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

/** A storage besides operands and outputs: memory to take, a part of another, or one that is the same each time. */
type Extra =
  | { readonly kind: "scratch"; readonly size: number }
  | { readonly kind: "view"; readonly base: number; readonly offset: number; readonly size: number }
  | { readonly kind: "fixed"; readonly storage: Storage };

export interface CachedLowering {
  readonly types: readonly ValueType[];
  readonly extras: readonly Extra[];
  readonly pieces: readonly Piece[];
}

const books = new WeakMap<Runtime, Map<object, SignatureTable<CachedLowering>>>();

/** The recipes of an op on a device. */
export function loweringsOf(runtime: Runtime, op: object): SignatureTable<CachedLowering> {
  let book = books.get(runtime);
  if (!book) {
    book = new Map();
    books.set(runtime, book);
  }
  let cachedLowerings = book.get(op);
  if (!cachedLowerings) {
    cachedLowerings = new SignatureTable();
    book.set(op, cachedLowerings);
  }
  return cachedLowerings;
}

/** Writes a recipe down while a lowering is at work. */
export class LoweringWriter {
  readonly #slots = new Map<Storage, number>();
  readonly #extras: Extra[] = [];
  readonly #pieces: Piece[] = [];
  readonly #mayFix: boolean;
  #next = 0;
  #isWhole = true;

  /** `mayFix`: the signature has the addresses of persistent operands, so that what lies beside them is the same each time. */
  constructor(operands: readonly (DeviceArray | number)[], outputs: readonly DeviceArray[], mayFix: boolean) {
    this.#mayFix = mayFix;
    // Two operands in one storage stand for it under the first one's number; the signature tells such calls apart.
    for (const one of [...operands, ...outputs]) {
      const storage = typeof one === "number" ? undefined : one.storage;
      if (storage && !this.#slots.has(storage)) this.#slots.set(storage, this.#next);
      this.#next++;
    }
  }

  noteScratch(storage: Storage): void {
    this.#add(storage, { kind: "scratch", size: storage.span.size });
  }

  noteView(view: Storage, base: Storage, offset: number): void {
    if (!this.#slots.has(base) && base.kind === "persistent" && this.#mayFix) {
      this.#add(base, { kind: "fixed", storage: base });
    }
    const from = this.#slots.get(base);
    if (from === undefined) this.#isWhole = false;
    else this.#add(view, { kind: "view", base: from, offset, size: view.span.size });
  }

  noteWork(piece: WorkCommand): void {
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
  finish(types: readonly ValueType[]): CachedLowering | undefined {
    return this.#isWhole ? { types, extras: this.#extras, pieces: this.#pieces } : undefined;
  }

  #add(storage: Storage, extra: Extra): void {
    this.#slots.set(storage, this.#next++);
    this.#extras.push(extra);
  }

  #slotOf(storage: Storage): number {
    const slot = this.#slots.get(storage);
    if (slot === undefined) this.#isWhole = false;
    return slot ?? 0;
  }
}

/** Is everything that a recipe holds on to still there? */
export function isUsable({ persistent }: Runtime, { extras }: CachedLowering): boolean {
  for (const extra of extras) if (extra.kind === "fixed" && !persistent.isLive(extra.storage)) return false;
  return true;
}

/** Does again what a recipe says, on other storages. Scratch memory and views end with it. */
export function replayLowering(
  runtime: Runtime,
  op: string,
  { extras, pieces }: CachedLowering,
  storages: (Storage | undefined)[],
): void {
  const before = storages.length;
  try {
    for (const extra of extras) {
      if (extra.kind === "scratch") storages.push(runtime.arena.allocate(extra.size, `${op} scratch`));
      else if (extra.kind === "fixed") storages.push(extra.storage);
      else storages.push(runtime.view(storages[extra.base] as Storage, extra.offset, extra.size, op));
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
    // From the last one back: a view ends before what it is a view of.
    for (let index = storages.length - 1; index >= before; index--) {
      const storage = storages[index];
      if (storage?.kind !== "step") continue;
      if (storage.owner) runtime.arena.dropView(storage);
      else runtime.arena.free(storage);
    }
  }
}
