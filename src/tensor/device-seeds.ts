/**
 * A device's seeds: the state of its random numbers, and the 1 of each dtype that backward starts from. They are in persistent
 * memory, because the end of a step frees the arena.
 */

import { type Dtype, dtypes } from "../ir/index.js";
import { encodeState } from "../kernels/index.js";
import type { DeviceArray } from "../ops/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { encodeElements } from "./host-values.js";

/** The dtypes a loss can have. */
const lossDtypes = ["f32", "f64", "bf16", "f16"] as const satisfies readonly Dtype[];

export class DeviceSeeds {
  /** The seed and the draw counter, as four words. */
  readonly randomState: DeviceArray;
  readonly #runtime: Runtime;
  readonly #ones: ReadonlyMap<Dtype, DeviceArray>;

  /** If even these do not fit, the runtime is closed: nothing else could end its threads. */
  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    const [random, ...ones] = placeSeeds(runtime);
    this.randomState = { shape: [4], strides: [1], dtype: "i32", storage: random };
    this.#ones = new Map(
      lossDtypes.map((dtype, index) => [dtype, { shape: [], strides: [], dtype, storage: ones[index] }]),
    );
    runtime.upload(
      lossDtypes.flatMap((dtype, index) => {
        const target = ones[index];
        return target ? [{ source: encodeElements([1], dtype), target }] : [];
      }),
    );
  }

  /** Restarts the random numbers. */
  reseed(seed: bigint): void {
    const { storage } = this.randomState;
    if (storage) this.#runtime.upload([{ source: encodeState({ seed }), target: storage }]);
  }

  /** A scalar 1; undefined for dtypes that no loss has. */
  oneOf(dtype: Dtype): DeviceArray | undefined {
    return this.#ones.get(dtype);
  }
}

function placeSeeds(runtime: Runtime): readonly Storage[] {
  try {
    const { storages } = runtime.persistent.place("scalars", "seeds", [
      { name: "random state", size: 16 },
      ...lossDtypes.map((dtype) => ({ name: `loss seed ${dtype}`, size: dtypes[dtype].bytes })),
    ]);
    return storages;
  } catch (rejection) {
    runtime.close();
    throw rejection;
  }
}
