/** Steps that were sent to the device and whose losses the host has not read, oldest first. */

import { stepColumns } from "../../records/index.js";
import { bufferSizes } from "../../units/index.js";
import { lossAt, type StepLog, type StepRow, storeRow } from "./step-log.js";

const width = stepColumns.length;
/** A ring buffer of steps without a loss. */
export class PendingSteps {
  #rows = new Float64Array(bufferSizes.stepRows * width);
  #first = 0;
  #count = 0;

  push(row: StepRow): void {
    if (this.#count * width === this.#rows.length) this.#grow();
    storeRow(this.#rows, ((this.#first + this.#count) * width) % this.#rows.length, row);
    this.#count++;
  }

  /** Moves the oldest step to the log, with its loss. Returns false if there is none. */
  shift(loss: number, to: StepLog): boolean {
    if (this.#count === 0) return false;
    const at = this.#first * width;
    this.#rows[at + lossAt] = loss;
    to.appendFrom(this.#rows, at);
    this.#first = (this.#first + 1) % (this.#rows.length / width);
    this.#count--;
    return true;
  }

  #grow(): void {
    const start = this.#first * width;
    const rows = new Float64Array(2 * this.#rows.length);
    rows.set(this.#rows.subarray(start));
    rows.set(this.#rows.subarray(0, start), this.#rows.length - start);
    [this.#rows, this.#first] = [rows, 0];
  }
}
