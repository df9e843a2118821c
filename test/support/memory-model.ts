/**
 * A simple model of the runtime's memory: live and pinned storages, the expected bytes and figures, kept in
 * plain lists and compared with the runtime.
 */

import assert from "node:assert/strict";
import type { RuntimeOptions } from "holdfast";
import { type CpuDriver, openRuntime, type Replayable, type Runtime, type Storage } from "holdfast/internals";

export const capacity = 512 * 1024;
export const chunk = 128 * 1024;
export const granularity = 64 * 1024;
export const limit = 704 * 1024;
const staging = 64 * 1024;
const unit = 256;

export const roundUp = (size: number, step: number): number => Math.ceil(size / step) * step;

export interface ModelBlock {
  readonly storage: Storage;
  readonly start: number;
  readonly extent: number;
  readonly step: number;
  pattern: number;
  isDue: boolean;
  pins: Storage[];
  views: { storage: Storage; step: number }[];
}

export interface ModelGraph {
  readonly replayable: Replayable;
  /** The output of a replay, and the byte that it writes. */
  readonly block: ModelBlock;
  readonly pinned: Storage;
  readonly pattern: number;
}

export class MemoryModel {
  readonly runtime: Runtime;
  readonly #device: CpuDriver;
  readonly blocks: ModelBlock[] = [];
  readonly graphs: ModelGraph[] = [];
  readonly dead: Storage[] = [];
  regionBytes = 0;
  openStep = 0;
  steps = 0;
  generation = 0;
  resetsByStep = 0;
  resetsByCall = 0;
  allocations = 0;
  bytes = 0;
  committed = 0;
  highWater = 0;
  #base: number | undefined;

  constructor(device: CpuDriver, runtime: Runtime) {
    this.#device = device;
    this.runtime = runtime;
  }

  static open(device: CpuDriver, options: RuntimeOptions): MemoryModel {
    const runtime = openRuntime({
      ...options,
      memory: limit as never,
      arena: capacity as never,
      chunk: chunk as never,
      staging: staging as never,
      stallAfter: "off",
      capture: "on",
      environment: {},
      print: () => {},
    });
    return new MemoryModel(device, runtime);
  }

  get used(): number {
    return staging + this.committed + this.regionBytes + this.graphs.length * 1024;
  }

  get left(): number {
    return limit - this.used;
  }

  /** The largest gap that no live block covers. */
  largestGap(): number {
    const sorted = [...this.blocks].sort((a, b) => a.start - b.start);
    let end = 0;
    let largest = 0;
    for (const block of sorted) {
      largest = Math.max(largest, block.start - end);
      end = block.start + block.extent;
    }
    return Math.max(largest, capacity - end);
  }

  /** Records a storage that the arena has just allocated, after checking that it is valid. */
  allocated(storage: Storage, size: number, pattern: number): void {
    // The arena's first storage is at its start: nothing is live then.
    if (this.blocks.length === 0 && this.#base === undefined) this.#base = storage.span.address;
    const start = storage.span.address - (this.#base ?? 0);
    const extent = roundUp(size, unit);
    assert.equal(storage.span.size, size);
    assert.equal(storage.span.address % unit, 0, "alignment");
    assert.ok(start >= 0 && start + extent <= capacity, "inside the capacity");
    for (const other of this.blocks) {
      if (start + extent <= other.start || other.start + other.extent <= start) continue;
      assert.fail(`${storage.label} at ${start} overlaps ${other.storage.label} at ${other.start}`);
    }
    const end = start + extent;
    if (end > this.committed) {
      const whole = Math.min(roundUp(end, chunk), capacity);
      const target = whole - this.committed > this.left ? roundUp(end, granularity) : whole;
      assert.ok(target - this.committed <= this.left, "growth inside the budget");
      this.committed = target;
    }
    const { openStep: step } = this;
    this.blocks.push({ storage, start, extent, step, pattern, isDue: false, pins: [], views: [] });
    this.allocations += 1;
    this.bytes += size;
    this.highWater = Math.max(this.highWater, end);
  }

  died(block: ModelBlock): void {
    this.blocks.splice(this.blocks.indexOf(block), 1);
    this.dead.push(block.storage, ...block.views.map((view) => view.storage));
  }

  endStep(): void {
    for (const block of this.blocks) {
      for (const { storage, step } of [...block.views]) {
        if (step === this.openStep) this.#viewEnded(block, storage);
      }
    }
    this.#expire(this.blocks.filter((block) => block.step === this.openStep && !block.isDue));
    this.openStep = 0;
    this.resetsByStep += 1;
  }

  reset(): void {
    this.#expire([...this.blocks]);
    this.resetsByCall += 1;
  }

  #expire(blocks: readonly ModelBlock[]): void {
    for (const block of blocks) {
      if (block.pins.length === 0) {
        this.died(block);
        continue;
      }
      block.isDue = true;
      for (const { storage } of [...block.views]) this.#viewEnded(block, storage);
    }
    this.generation += 1;
  }

  unpinned(block: ModelBlock, storage: Storage): void {
    block.pins.splice(block.pins.lastIndexOf(storage), 1);
    if (block.pins.length === 0 && block.isDue) {
      this.died(block);
      return;
    }
    const step = block.views.find((view) => view.storage === storage)?.step ?? 0;
    if (step > 0 && step !== this.openStep) this.#viewEnded(block, storage);
  }

  /** A view whose step is over is dead unless it is pinned. */
  #viewEnded(block: ModelBlock, view: Storage): void {
    if (block.pins.includes(view)) return;
    block.views = block.views.filter(({ storage }) => storage !== view);
    this.dead.push(view);
  }

  /** Compares every figure of the runtime with the model's. */
  checkFigures(): void {
    const now = this.runtime.arena.figures;
    const sum = (blocks: readonly ModelBlock[]): number =>
      blocks.reduce((total, block) => total + block.extent, 0);
    const pinned = this.blocks.filter((block) => block.pins.length > 0);
    assert.equal(now.live, sum(this.blocks), "live");
    assert.equal(now.pinned, sum(pinned), "pinned");
    assert.equal(
      now.pins,
      pinned.reduce((total, block) => total + block.pins.length, 0),
      "pins",
    );
    assert.equal(
      now.offset,
      Math.max(0, ...this.blocks.map((block) => block.start + block.extent)),
      "offset",
    );
    assert.equal(now.highWater, this.highWater, "highWater");
    assert.equal(now.committed, this.committed, "committed");
    assert.equal(now.capacity, capacity, "capacity");
    assert.equal(now.generation, this.generation, "generation");
    assert.equal(now.resetsByStep, this.resetsByStep, "resetsByStep");
    assert.equal(now.resetsByCall, this.resetsByCall, "resetsByCall");
    assert.equal(now.allocations, this.allocations, "allocations");
    assert.equal(now.bytes, this.bytes, "bytes");
    assert.equal(now.hits + now.misses + now.reuses, this.allocations, "hits, misses, reuses");
    assert.equal(this.runtime.budget.used, this.used, "budget");
    for (const block of this.blocks)
      assert.ok(this.runtime.arena.isLive(block.storage), "a live storage is alive");
  }

  /** Every byte of every live storage has the last written value. */
  checkBytes(): void {
    this.runtime.synchronize();
    for (const { storage, pattern } of this.blocks) {
      const actual = this.#device.deviceBytes(storage.span);
      if (Buffer.compare(actual, patternOf(pattern, actual.length)) !== 0)
        assert.fail(`bytes of ${storage.label}`);
    }
  }
}

const patterns = new Map<number, Uint8Array>();

function patternOf(byte: number, length: number): Uint8Array {
  let filled = patterns.get(byte);
  if (!filled) {
    filled = new Uint8Array(capacity).fill(byte);
    patterns.set(byte, filled);
  }
  return filled.subarray(0, length);
}
