/**
 * The scalar results of a compiled step. Each call writes its number to the next slot of a ring on the device. The ring is
 * copied to the host from time to time, without waiting.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, iterateElements, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { rowCalls, submit } from "../../kernels/index.js";
import type { DeviceArray } from "../../ops/index.js";
import type { Mailbox, Region, Runtime, Storage } from "../../runtime/index.js";
import { bufferSizes } from "../../units/index.js";

/** Capacity of a ring; a power of two. */
const capacity = bufferSizes.ring;
/** Calls between two transfers of the ring. */
const readEvery = Math.ceil(capacity / 4);
/** Calls between two polls for its arrival. */
const pollEvery = Math.ceil(capacity / 32);

const putKernels = new Map<Dtype, RowKernel>();

/** Inputs: the ring, the call count, the number. Output: the ring, with the number at index count. */
function putKernel(dtype: Dtype): RowKernel {
  const cached = putKernels.get(dtype);
  if (cached) return cached;
  const slot = term.and(term.load(1, "i32"), capacity - 1);
  const value = term.select(
    term.eq(term.position, slot),
    term.convert(term.load(2, dtypes[dtype].compute), "f64"),
    term.load(0, "f64"),
  );
  const kernel: RowKernel = {
    name: "ring",
    inputs: ["f64", "i32", dtype],
    outputs: [{ dtype: "f64", per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value }],
  };
  putKernels.set(dtype, kernel);
  return kernel;
}

const countKernel: RowKernel = {
  name: "count of calls",
  inputs: ["i32"],
  outputs: [{ dtype: "i32", per: "element" }],
  scalars: [],
  stages: [{ kind: "store", output: 0, value: term.add(term.load(0, "i32"), 1) }],
};

export class ScalarRing {
  readonly #runtime: Runtime;
  readonly #region: Region;
  readonly #ring: Storage;
  readonly #count: Storage;
  readonly #mailbox: Mailbox;
  readonly #onNumbers: (numbers: readonly number[]) => void;
  readonly #kept: number[] = [];
  /** Calls so far, calls whose numbers are on the host, and calls whose numbers are in flight. */
  #calls = 0;
  #read = 0;
  #posted = 0;

  /** `onNumbers` gets all numbers, in order, as they arrive at the host. */
  constructor(runtime: Runtime, name: string, onNumbers: (numbers: readonly number[]) => void) {
    this.#runtime = runtime;
    this.#onNumbers = onNumbers;
    this.#region = runtime.persistent.place("scalars", `ring of ${name}`, [
      { name: `ring of ${name}`, size: capacity * 8 },
      { name: `count of ${name}`, size: 4 },
    ]);
    const [ring, count] = this.#region.storages;
    if (!ring || !count) throw new HoldfastError("BAD_ARGUMENT", `The ring of ${name} has no memory.`);
    this.#ring = ring;
    this.#count = count;
    runtime.fill(this.#region.whole, 0);
    this.#mailbox = runtime.createMailbox(capacity * 8, `ring of ${name}`);
  }

  /** The latest numbers on the host, oldest first. */
  get latest(): readonly number[] {
    return this.#kept;
  }

  /** Puts a number into the ring, as part of the step. */
  put({ storage, dtype }: DeviceArray): void {
    if (!storage) return;
    const [ring, count] = [this.#ring, this.#count];
    submit(
      this.#runtime,
      rowCalls({
        kernel: putKernel(dtype),
        iteration: iterateRows([capacity], [[1], [0], [0], [1]], 1),
        operands: [ring, count, storage, ring],
      }),
    );
    submit(
      this.#runtime,
      rowCalls({
        kernel: countKernel,
        iteration: iterateElements([1], [[0], [0]]),
        operands: [count, count],
      }),
    );
  }

  /** Called after each call of the step: takes the numbers that have arrived, and starts a transfer when it is due. */
  noteCall(): void {
    this.#calls += 1;
    // Numbers that are not fetched in time would be overwritten.
    const isFull = this.#calls - this.#read >= capacity;
    if (this.#mailbox.isBusy && (isFull || this.#calls % pollEvery === 0)) this.#take(isFull);
    if (!this.#mailbox.isBusy && this.#calls - this.#read >= readEvery) this.#post();
    if (isFull && this.#mailbox.isBusy) this.#take(true);
  }

  /** Starts a transfer of the missing numbers, and takes the numbers that have arrived. Does not wait. */
  refresh(): void {
    if (this.#mailbox.isBusy) this.#take(false);
    if (this.#mailbox.isBusy || this.#read === this.#calls) return;
    this.#post();
    this.#take(false);
  }

  /** Waits until the numbers of all calls are on the host. */
  flush(): void {
    this.#take(true);
    if (this.#read === this.#calls) return;
    this.#post();
    this.#take(true);
  }

  close(): void {
    this.#mailbox.close();
    this.#runtime.persistent.release(this.#region);
  }

  #post(): void {
    this.#mailbox.post(this.#ring);
    this.#posted = this.#calls;
  }

  #take(wait: boolean): void {
    const bytes = this.#mailbox.take(wait);
    if (!bytes) return;
    const ring = new Float64Array(bytes.buffer);
    const numbers: number[] = [];
    for (let call = this.#read; call < this.#posted; call++)
      numbers.push(ring[call % capacity] ?? Number.NaN);
    this.#read = this.#posted;
    this.#kept.push(...numbers);
    const excess = this.#kept.length - bufferSizes.history;
    if (excess > 0) this.#kept.splice(0, excess);
    this.#onNumbers(numbers);
  }
}
