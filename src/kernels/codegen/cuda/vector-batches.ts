/**
 * The loop over the vectors of a row that do not fit in registers. A thread issues the loads of several vectors before it uses the first
 * one: the compiler would not move a load across the test for the end of the row.
 */

import { maxThreadsPerBlock } from "../../cost-model.js";
import type { KernelText } from "./kernel-text.js";

/**
 * Bytes that a thread loads before it uses the first vector. With two resident blocks of 1024 threads, a thread has 32 registers. An SM then
 * has 64 KiB in flight, several times what the memory latency requires.
 */
const bytesInFlight = (lanes: number): number => (lanes === maxThreadsPerBlock ? 32 : 64);

const maxVectorsInFlight = 4;

/** `vectorBytes`: the bytes of a vector of all inputs. */
export function vectorsInFlight(vectorBytes: number, lanes: number): number {
  const count = Math.floor(bytesInFlight(lanes) / Math.max(1, vectorBytes));
  return Math.min(maxVectorsInFlight, Math.max(1, count));
}

export interface BatchLoop {
  /** The range of the row, in elements; `to` is an expression. */
  readonly from: number;
  readonly to: string;
  /** Elements of a vector, threads of the row, and vectors of a batch. */
  readonly width: number;
  readonly lanes: number;
  readonly count: number;
  /** The end of the row, if its last vector may be shorter: then the local `remaining` has the number of its elements. */
  readonly end?: string;
  /** Declares arrays of `count` vectors. */
  declare(count: number): void;
  /** Loads the vectors at `position`, as elements `v` of the arrays. */
  load(): void;
  /** Whether this loads anything, and whether it loads from memory, up to the end of the row. */
  readonly loads: "nothing" | "shared memory" | "memory";
  /** Uses the vectors `v` of the arrays. */
  use(): void;
}

export function printBatches(text: KernelText, loop: BatchLoop): void {
  const { from, to, width, lanes, count, end } = loop;
  const stride = width * lanes;
  const start = `${from === 0 ? "" : `${from}u + `}lane * ${width}u`;
  const eachVector = (usesRemaining: boolean, print: () => void): void =>
    text.unrolled("v", count, () => {
      text.line(`const unsigned position = first + v * ${stride}u;`);
      text.block(`if (position < ${to})`, () => {
        // Numbers that are drawn need none.
        if (end !== undefined && usesRemaining)
          text.line(`[[maybe_unused]] const unsigned remaining = ${end} - position;`);
        print();
      });
    });
  text.block(`for (unsigned first = ${start}; first < ${to}; first += ${count * stride}u)`, () => {
    loop.declare(count);
    if (loop.loads !== "nothing") eachVector(loop.loads === "memory", () => loop.load());
    eachVector(true, () => loop.use());
  });
}
