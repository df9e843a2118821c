/**
 * The lowering cache: keeps the commands of an op's lowering for later calls whose operands have the same layouts. A step calls the
 * same ops with the same shapes in every iteration, and lowering them again costs more than the launches.
 *
 * An entry holds commands with slot numbers for storages: first the operands, then the outputs, then the scratch memory and the views
 * of the lowering. Its key is the call's signature: dtypes, shapes, strides, sizes and alignment in memory, which operands share a
 * storage, and the attributes.
 */

import type { Kernel } from "../driver/index.js";
import type { LoadedCommand, Runtime, Storage } from "../runtime/index.js";
import type { DeviceArray, Strides } from "./device-array.js";
import type { LoweringMemory } from "./lowering.js";
import type { ValueType } from "./op.js";
import { SignatureTable } from "./signature.js";

/** An argument of a cached launch: a storage's slot, or a number. */
type Slot = { readonly slot: number } | number;

type CachedCommand =
  | {
      readonly kind: "launch";
      readonly op: string;
      readonly kernel: Kernel;
      readonly blocks: number;
      readonly arguments: readonly Slot[];
    }
  | { readonly kind: "fill"; readonly target: number; readonly byte: number }
  | { readonly kind: "copy"; readonly target: number; readonly source: number };

/** A storage that is neither operand nor output: scratch memory, a view of another storage, or the same storage in every call. */
type Extra =
  | { readonly kind: "scratch"; readonly size: number }
  | { readonly kind: "view"; readonly base: number; readonly offset: number; readonly size: number }
  | { readonly kind: "fixed"; readonly storage: Storage };

/** The type of an output, and its strides if it is not row-major. */
export interface OutputType extends ValueType {
  readonly strides?: Strides | undefined;
}

export interface CachedLowering {
  readonly types: readonly OutputType[];
  readonly extras: readonly Extra[];
  readonly commands: readonly CachedCommand[];
}

/** The lowerings of one runtime, by op. */
export class LoweringCache {
  /** If false, every call is lowered. */
  isOn = true;
  readonly #tables = new Map<object, SignatureTable<CachedLowering>>();

  tableOf(op: object): SignatureTable<CachedLowering> {
    const existing = this.#tables.get(op);
    if (existing) return existing;
    const table = new SignatureTable<CachedLowering>();
    this.#tables.set(op, table);
    return table;
  }
}

const caches = new WeakMap<Runtime, LoweringCache>();

export function loweringCacheOf(runtime: Runtime): LoweringCache {
  const existing = caches.get(runtime);
  if (existing) return existing;
  const cache = new LoweringCache();
  caches.set(runtime, cache);
  return cache;
}

/**
 * A cache entry for a lowering; undefined if the lowering used a storage that an entry can't name. `hasAddresses`: the signature has
 * the addresses of persistent operands, so their region is the same in every call.
 */
export function cacheableLowering(
  types: readonly OutputType[],
  arrays: readonly (DeviceArray | number)[],
  memory: readonly LoweringMemory[],
  commands: readonly LoadedCommand[],
  hasAddresses: boolean,
): CachedLowering | undefined {
  const slots = new Map<Storage, number>();
  const extras: Extra[] = [];
  let next = 0;
  // Operands that share a storage share the first one's slot. The signature distinguishes such calls.
  for (const array of arrays) {
    const storage = typeof array === "number" ? undefined : array.storage;
    if (storage && !slots.has(storage)) slots.set(storage, next);
    next++;
  }
  let isComplete = true;
  const add = (storage: Storage, extra: Extra): void => {
    slots.set(storage, next++);
    extras.push(extra);
  };
  const slotOf = (storage: Storage): number => {
    const slot = slots.get(storage);
    if (slot === undefined) isComplete = false;
    return slot ?? 0;
  };
  for (const allocation of memory) {
    const { storage } = allocation;
    const { size } = storage.span;
    if (allocation.kind === "scratch") {
      add(storage, { kind: "scratch", size });
      continue;
    }
    const { base, offset } = allocation;
    if (!slots.has(base) && base.kind === "persistent" && hasAddresses)
      add(base, { kind: "fixed", storage: base });
    add(storage, { kind: "view", base: slotOf(base), offset, size });
  }
  const cached = commands.map((command): CachedCommand => {
    if (command.kind === "fill") return { kind: "fill", target: slotOf(command.target), byte: command.byte };
    if (command.kind === "copy")
      return { kind: "copy", target: slotOf(command.target), source: slotOf(command.source) };
    const { op, kernel, blocks, arguments: values } = command.request;
    const slotArguments = values.map(
      (value): Slot => (typeof value === "number" ? value : { slot: slotOf(value) }),
    );
    return { kind: "launch", op, kernel, blocks, arguments: slotArguments };
  });
  return isComplete ? { types, extras, commands: cached } : undefined;
}

/** True if every fixed storage of the entry is still live. */
export function isUsable({ persistent }: Runtime, { extras }: CachedLowering): boolean {
  for (const extra of extras) if (extra.kind === "fixed" && !persistent.isLive(extra.storage)) return false;
  return true;
}

/** Submits an entry's commands with this call's storages. Scratch memory and views end with the call. */
export function replayLowering(
  runtime: Runtime,
  op: string,
  { extras, commands }: CachedLowering,
  storages: (Storage | undefined)[],
): void {
  const before = storages.length;
  try {
    for (const extra of extras) {
      if (extra.kind === "scratch") storages.push(runtime.arena.allocate(extra.size, `${op} scratch`));
      else if (extra.kind === "fixed") storages.push(extra.storage);
      else storages.push(runtime.view(storages[extra.base] as Storage, extra.offset, extra.size, op));
    }
    for (const command of commands) {
      if (command.kind === "launch") {
        const { kernel, blocks } = command;
        const values = command.arguments.map((value) =>
          typeof value === "number" ? value : (storages[value.slot] as Storage),
        );
        runtime.launch({ op: command.op, kernel, blocks, arguments: values });
      } else if (command.kind === "fill") runtime.fill(storages[command.target] as Storage, command.byte);
      else runtime.copy(storages[command.target] as Storage, storages[command.source] as Storage);
    }
  } finally {
    // In reverse order: a view ends before its base.
    for (let index = storages.length - 1; index >= before; index--) {
      const storage = storages[index];
      if (storage?.kind !== "step") continue;
      if (storage.owner) runtime.arena.dropView(storage);
      else runtime.arena.free(storage);
    }
  }
}
