/**
 * What single numbers a compiled step gives, call after call: on the device each goes to the next place of a ring, and the
 * ring comes to the host now and then, while both go on with their work.
 */

import { HoldfastError } from "../errors/index.js";
import {
  type Dtype,
  dtypes,
  iterateElements,
  iterateRows,
  launchRows,
  type RowKernel,
  term,
} from "../kernels/index.js";
import type { DeviceArray } from "../ops/index.js";
import type { Mailbox, Region, Runtime, Storage } from "../runtime/index.js";

/** How many numbers a ring holds; a power of two. */
const places = 256;
/** After so many calls the ring is sent for. */
const readEvery = 64;
/** After so many calls it is asked whether it has arrived. */
const askEvery = 8;
/** Numbers that are kept on the host, the latest ones. */
const mostKept = 65_536;

const putKernels = new Map<Dtype, RowKernel>();

/** Inputs: the ring, the count of calls, the number. Output: the ring, with the number at the count's place. */
function putKernel(dtype: Dtype): RowKernel {
  const known = putKernels.get(dtype);
  if (known) return known;
  const place = term.and(term.load(1, "i32"), places - 1);
  const value = term.select(
    term.eq(term.position, place),
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
  readonly #kept: number[] = [];
  /** Calls so far, those whose numbers are on the host, and those whose numbers are on their way. */
  #calls = 0;
  #read = 0;
  #posted = 0;

  constructor(runtime: Runtime, name: string) {
    this.#runtime = runtime;
    this.#region = runtime.persistent.place("scalars", `ring of ${name}`, [
      { name: `ring of ${name}`, size: places * 8 },
      { name: `count of ${name}`, size: 4 },
    ]);
    const [ring, count] = this.#region.storages;
    if (!ring || !count) throw new HoldfastError("BAD_ARGUMENT", `The ring of ${name} has no place.`);
    this.#ring = ring;
    this.#count = count;
    runtime.fill(this.#region.whole, 0);
    this.#mailbox = runtime.createMailbox(places * 8, `ring of ${name}`);
  }

  /** The numbers of the calls so far, as far as they are on the host, oldest first. */
  get known(): readonly number[] {
    return this.#kept;
  }

  /** Puts a number into the ring: a part of the step. */
  put({ storage, dtype }: DeviceArray): void {
    if (!storage) return;
    const [ring, count] = [this.#ring, this.#count];
    launchRows(this.#runtime, {
      kernel: putKernel(dtype),
      iteration: iterateRows([places], [[1], [0], [0], [1]], 1),
      operands: [ring, count, storage, ring],
    });
    launchRows(this.#runtime, {
      kernel: countKernel,
      iteration: iterateElements([1], [[0], [0]]),
      operands: [count, count],
    });
  }

  /** Called behind each call of the step: takes what has arrived, and sends for more when it is time. */
  noteCall(): void {
    this.#calls += 1;
    // What is not fetched in time would be written over.
    const isFull = this.#calls - this.#read >= places;
    if (this.#mailbox.isBusy && (isFull || this.#calls % askEvery === 0)) this.#take(isFull);
    if (!this.#mailbox.isBusy && this.#calls - this.#read >= readEvery) this.#post();
    if (isFull && this.#mailbox.isBusy) this.#take(true);
  }

  /** Sends for what is not on the host yet, and takes what has arrived. Waits for nothing. */
  refresh(): void {
    if (this.#mailbox.isBusy) this.#take(false);
    if (this.#mailbox.isBusy || this.#read === this.#calls) return;
    this.#post();
    this.#take(false);
  }

  /** Waits until the numbers of all calls so far are on the host. */
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
    const numbers = new Float64Array(bytes.buffer);
    for (let call = this.#read; call < this.#posted; call++)
      this.#kept.push(numbers[call % places] ?? Number.NaN);
    this.#read = this.#posted;
    if (this.#kept.length > mostKept) this.#kept.splice(0, this.#kept.length - mostKept);
  }
}
