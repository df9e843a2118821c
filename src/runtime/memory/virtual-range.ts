/**
 * A reserved address range into which memory is committed from the start, as it is needed. Growing never moves existing
 * memory. Growth is charged to the budget; if it fails, nothing has changed.
 */

import type { Driver } from "../../driver/index.js";
import { type Address, alignUp, type Bytes, type Span } from "../../units/index.js";
import type { Budget, Charge } from "./budget.js";

export interface VirtualRangeOptions {
  readonly driver: Driver;
  readonly budget: Budget;
  readonly capacity: Bytes;
  /** Memory is committed in multiples of this. Default: see `minGrowth`. */
  readonly chunk?: Bytes | undefined;
}

/**
 * Without a chunk, growth commits at least this share of the memory so far, and otherwise only the request. A large request, such as the
 * memory of a compiled step, then leaves little unused, and many small ones take few commits.
 */
const minGrowth = 1 / 16;

export class VirtualRange {
  readonly range: Span;
  readonly #options: VirtualRangeOptions;
  readonly #granularity: Bytes;
  readonly #charges: Charge[] = [];
  #committed = 0;

  constructor(options: VirtualRangeOptions) {
    const { driver } = options;
    const { granularity, canCommitInParts } = driver.describe();
    this.#options = options;
    this.#granularity = granularity;
    const capacity = alignUp(options.capacity, granularity);
    this.range = canCommitInParts ? driver.reserve(capacity) : this.#takeWhole(capacity);
  }

  get committed(): Bytes {
    return this.#committed as Bytes;
  }

  /** Commits memory up to at least `end`, and returns the new range. */
  grow(end: number, label: string): Span {
    const { driver, budget } = this.#options;
    const wanted = Math.min(this.#chunkEnd(end), this.range.size);
    // The last chunk may be short: growth must not fail for memory that was not requested.
    const target =
      wanted - this.#committed > budget.left ? Math.min(wanted, alignUp(end, this.#granularity)) : wanted;
    const added: Span = {
      address: (this.range.address + this.#committed) as Address,
      size: (target - this.#committed) as Bytes,
    };
    const charge = budget.charge("step arena", added.size, `growth for ${label}`);
    try {
      driver.commit(added);
    } catch (error) {
      budget.release(charge);
      throw error;
    }
    this.#charges.push(charge);
    this.#committed = target;
    return added;
  }

  #chunkEnd(end: number): number {
    const { chunk } = this.#options;
    if (chunk !== undefined) return alignUp(end, alignUp(chunk, this.#granularity));
    return alignUp(Math.max(end, this.#committed * (1 + minGrowth)), this.#granularity);
  }

  /** If an address range comes with its memory, charge the budget before asking the device. */
  #takeWhole(size: Bytes): Span {
    const { driver, budget } = this.#options;
    const charge = budget.charge("step arena", size, "the whole arena");
    let range: Span | undefined;
    try {
      range = driver.reserve(size);
      driver.commit(range);
    } catch (error) {
      if (range) driver.release(range);
      budget.release(charge);
      throw error;
    }
    this.#charges.push(charge);
    this.#committed = range.size;
    return range;
  }

  release(): void {
    this.#options.driver.release(this.range);
    for (const charge of this.#charges) this.#options.budget.release(charge);
  }
}
