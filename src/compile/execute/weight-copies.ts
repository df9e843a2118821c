/**
 * The memory of weight copies, and their refresh. A weight copy is persistent: it has some weights in another dtype from one call of a step
 * to the next. A step that updates the weights also stores the copy, which rule `copies` of the verifier checks.
 *
 * Other work may write the weights too: eager code, an upload, another step. Regions count all work that may write to them, so a copy is
 * current if neither the weights nor the copy were written since the last moment at which it was. Before a step that reads a copy which is
 * not current, the copy is converted again.
 *
 * All steps of a device share the copies: a step that only reads weights needs no refresh after one that keeps the copy current.
 */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, inputDtypes, iterateElements, type RowKernel } from "../../ir/index.js";
import type { PersistentStorage, Region, Replayable, Runtime } from "../../runtime/index.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type ConvertedWeights,
  type RowCall,
} from "../program/program.js";
import { emitCommands, type StepCommand, submitCommands } from "./emit.js";

/** A copy that some plan holds. */
interface WeightCopy {
  readonly buffer: Buffer;
  readonly copied: ConvertedWeights;
  readonly region: Region;
  /** How many plans hold it. */
  holders: number;
  /** Converts the weights; undefined before the first refresh. */
  commands: readonly StepCommand[] | undefined;
  /** The counts of writes at which it was last current. */
  readonly current: { weights: number; copy: number };
}

/** The copies that a device has. The ids of their buffers are below those of a step's own persistent buffers. */
interface DeviceCopies {
  readonly open: Set<WeightCopy>;
  nextId: number;
}

const devices = new WeakMap<Runtime, DeviceCopies>();

/** The weight copies of one plan. */
export class WeightCopies {
  readonly #runtime: Runtime;
  readonly #device: DeviceCopies;
  readonly #held = new Set<WeightCopy>();
  /** True if the plan is made: its variants share its copies and add none. */
  #isSealed = false;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    const device = devices.get(runtime) ?? { open: new Set(), nextId: -3 };
    devices.set(runtime, device);
    this.#device = device;
  }

  /** An existing copy of weights that contain these. */
  find(
    source: BufferSlice,
    kernel: RowKernel,
    isWanted: (copied: ConvertedWeights) => boolean,
  ): Buffer | undefined {
    for (const copy of this.#isSealed ? this.#held : this.#device.open) {
      const { copied, buffer } = copy;
      if (copied.kernel !== kernel || regionOf(copied.source) !== regionOf(source)) continue;
      if (!isWithin(source, copied.source) || !isWanted(copied)) continue;
      this.#hold(copy);
      return buffer;
    }
    return undefined;
  }

  /** A new copy of `bytes` bytes. Undefined if memory is short, or if the plan is made. */
  place(copied: ConvertedWeights, bytes: number, label: string): Buffer | undefined {
    const region = this.#isSealed ? undefined : placeIfFree(this.#runtime, label, bytes);
    if (!region) return undefined;
    const buffer: Buffer = {
      ...{ id: this.#device.nextId, bytes, label, storage: region.storages[0] ?? region.whole },
      copyOf: copied,
    };
    this.#device.nextId -= 1;
    const current = { weights: never, copy: never };
    const copy: WeightCopy = { buffer, copied, region, holders: 0, commands: undefined, current };
    this.#device.open.add(copy);
    this.#hold(copy);
    return buffer;
  }

  /** Those copies of the calls that no other plan holds. */
  addedBy(calls: readonly Call[]): readonly Buffer[] {
    return this.#usedBy(calls).flatMap(({ buffer, holders }) => (holders === 1 ? [buffer] : []));
  }

  /** Ends planning: releases the copies that the plan's calls do not access. */
  seal(calls: readonly Call[]): void {
    const used = this.#usedBy(calls);
    for (const copy of [...this.#held]) if (!used.includes(copy)) this.#drop(copy);
    this.#isSealed = true;
  }

  /** The same work with a refresh before it, of the copies that its calls access and that are not current. */
  keepCurrent(replayable: Replayable, calls: readonly Call[]): Replayable {
    const used = this.#usedBy(calls);
    if (used.length === 0) return replayable;
    const replay = (): void => {
      // Recorded work runs at another time, so it always refreshes, and nothing is known afterwards.
      const { isCapturing } = this.#runtime;
      for (const copy of used) if (isCapturing || !isCurrent(copy)) this.#refresh(copy);
      replayable.replay();
      if (!isCapturing) used.forEach(noteCurrent);
    };
    return { ...replayable, replay };
  }

  /** Refreshes the copies that these calls access and that are not current. */
  refresh(calls: readonly Call[]): void {
    for (const copy of this.#usedBy(calls)) if (!isCurrent(copy)) this.#refresh(copy);
  }

  /** Releases the copies that no other plan holds. The plan's graphs are closed. Idempotent. */
  close(): void {
    for (const copy of [...this.#held]) this.#drop(copy);
  }

  #usedBy(calls: readonly Call[]): readonly WeightCopy[] {
    const buffers = new Set(calls.flatMap((call) => accessesOf(call).map(({ slice }) => slice.buffer)));
    return [...this.#held].filter(({ buffer }) => buffers.has(buffer));
  }

  #refresh(copy: WeightCopy): void {
    copy.commands ??= this.#emit(copy);
    submitCommands(this.#runtime, copy.commands);
    noteCurrent(copy);
  }

  #emit({ buffer, copied }: WeightCopy): readonly StepCommand[] {
    const runtime = this.#runtime;
    const call: Call = { op: "weight copy", work: castTo(buffer, copied.kernel, copied.source) };
    return emitCommands(runtime, [call], ({ buffer: { storage, label }, offset, size }) => {
      if (!storage) throw new Error(`"${label}" is not persistent.`);
      return runtime.view(storage, offset, size, label);
    });
  }

  #hold(copy: WeightCopy): void {
    if (this.#held.has(copy)) return;
    this.#held.add(copy);
    copy.holders += 1;
  }

  #drop(copy: WeightCopy): void {
    this.#held.delete(copy);
    copy.holders -= 1;
    if (copy.holders > 0) return;
    this.#device.open.delete(copy);
    this.#runtime.persistent.release(copy.region);
  }
}

/** Undefined if memory is short: the step then does without. */
function placeIfFree({ persistent, budget }: Runtime, name: string, size: number): Region | undefined {
  const placements = [{ name, size }];
  if (!budget.fitsWithoutPressure(persistent.chargeFor(name, placements))) return undefined;
  try {
    return persistent.place("weight copies", name, placements);
  } catch (error) {
    // The budget has room, but the device's memory or addresses may be in pieces.
    if (error instanceof HoldfastError && error.code === "OUT_OF_MEMORY") return undefined;
    throw error;
  }
}

/** No count of writes. */
const never = -1;

const regionOf = ({ buffer }: BufferSlice): Region => (buffer.storage as PersistentStorage).home;

function isWithin(inner: BufferSlice, outer: BufferSlice): boolean {
  return outer.offset <= inner.offset && inner.offset + inner.size <= outer.offset + outer.size;
}

function isCurrent({ copied, region, current }: WeightCopy): boolean {
  return current.weights === regionOf(copied.source).writes && current.copy === region.writes;
}

function noteCurrent({ copied, region, current }: WeightCopy): void {
  current.weights = regionOf(copied.source).writes;
  current.copy = region.writes;
}

/** The bytes of an element before and after a conversion. */
export function elementBytes({ inputs, outputs }: RowKernel): {
  readonly read: number;
  readonly written: number;
} {
  return {
    read: inputDtypes[inputs[0] ?? "f32"].bytes,
    written: dtypes[outputs[0]?.dtype ?? "f32"].bytes,
  };
}

/** The bytes of a copy that belong to some of its weights. */
export function sliceOfCopy(copy: Buffer, weights: BufferSlice): BufferSlice {
  const { source, kernel, offset } = copy.copyOf as ConvertedWeights;
  const { read, written } = elementBytes(kernel);
  const convert = (bytes: number): number => (bytes / read) * written;
  return {
    buffer: copy,
    offset: offset + convert(weights.offset - source.offset),
    size: convert(weights.size),
  };
}

/** Converts some of a copy's weights. */
export function castTo(copy: Buffer, kernel: RowKernel, weights: BufferSlice): RowCall {
  const target = sliceOfCopy(copy, weights);
  const length = target.size / elementBytes(kernel).written;
  return {
    ...{ kind: "row", kernel, scalars: [] },
    iteration: iterateElements([length], [[1], [1]]),
    operands: [weights, target],
  };
}
