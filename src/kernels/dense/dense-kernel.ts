/** Kernels of dense linear algebra: JavaScript functions that compute one matrix of a batch in each block, in doubles. */

import type { KernelSource } from "../../driver/index.js";

/** How a kernel reads and writes an array: as f32 or f64 by the launch, or as i32. */
export type DenseElement = "float" | "i32";

export interface DenseRoutine {
  readonly name: string;
  readonly inputs: readonly DenseElement[];
  readonly outputs: readonly DenseElement[];
  /** The number of numbers that follow the arrays. */
  readonly numbers: number;
  /**
   * Computes the outputs of one matrix. It may overwrite the inputs. Outputs are zeros at first; `fail` makes all float outputs NaN.
   */
  run(
    inputs: readonly Float64Array[],
    outputs: readonly Float64Array[],
    numbers: readonly number[],
    fail: () => void,
  ): void;
}

type ElementView = Float32Array | Float64Array | Int32Array;

/**
 * The arguments of a launch: the inputs, the outputs, 1 if floats are f32 and 0 if they are f64, the number of elements of each input and
 * output in one block, and the routine's numbers.
 */
export function denseKernel(routine: DenseRoutine): KernelSource {
  const { name, inputs, outputs } = routine;
  const elements = [...inputs, ...outputs];
  const scalars = 1 + elements.length + routine.numbers;
  return {
    name,
    parameters: [
      ...inputs.map(() => "in" as const),
      ...outputs.map(() => "out" as const),
      ...new Array<"f64">(scalars).fill("f64"),
    ],
    host: (memory, firstBlock = 0, endBlock = 0, ...args) => {
      const addresses = args.slice(0, elements.length);
      const [isSingle = 0, ...rest] = args.slice(elements.length);
      const counts = rest.slice(0, elements.length);
      const numbers = rest.slice(elements.length);
      for (let block = firstBlock; block < endBlock; block++) {
        const views = elements.map((element, index) =>
          viewOf(memory, element, isSingle === 1, addresses[index] ?? 0, counts[index] ?? 0, block),
        );
        const sources = views.slice(0, inputs.length).map((view) => Float64Array.from(view));
        const targets = views.slice(inputs.length);
        const results = targets.map(({ length }) => new Float64Array(length));
        routine.run(sources, results, numbers, () => {
          for (const [index, result] of results.entries())
            if (outputs[index] === "float") result.fill(Number.NaN);
        });
        for (const [index, target] of targets.entries()) target.set(results[index] ?? []);
      }
    },
  };
}

function viewOf(
  memory: ArrayBufferLike,
  element: DenseElement,
  isSingle: boolean,
  address: number,
  count: number,
  block: number,
): ElementView {
  if (element === "i32") return new Int32Array(memory, address + 4 * block * count, count);
  if (isSingle) return new Float32Array(memory, address + 4 * block * count, count);
  return new Float64Array(memory, address + 8 * block * count, count);
}
