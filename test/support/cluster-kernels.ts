/**
 * Kernels with clusters on the emulator: built from their bodies, launched with their memory, and checked for
 * their status.
 */

import assert from "node:assert/strict";
import type { BareArgument, BareCuda } from "./bare-cuda.js";
import type { Emulator } from "./emulator.js";

export interface ClusterShape {
  readonly blocks: number;
  readonly threads: number;
  readonly cluster?: number;
  /** Of dynamic shared memory. */
  readonly bytes?: number;
}

export class ClusterKernels {
  readonly #bare: BareCuda;
  readonly #emulator: Emulator;

  constructor(bare: BareCuda, emulator: Emulator) {
    this.#bare = bare;
    this.#emulator = emulator;
  }

  /** A kernel `hf`; `memory` is the block's dynamic shared memory. */
  code({ threads, cluster = 4, bytes = 1024 }: ClusterShape, parameters: string, body: string): string {
    return `extern "C" __global__ void __cluster_dims__(${cluster}, 1, 1) __launch_bounds__(${threads}, 1) hf(${parameters}) {
    dynamicSharedMemory(memory, ${bytes});
    ${body}
  }`;
  }

  load(shape: ClusterShape, parameters: string, body: string): number {
    const entry = this.#bare.load(this.code(shape, parameters, body), "hf");
    this.#bare.cuda.driver.cuFuncSetAttribute(entry, 8, shape.bytes ?? 1024);
    return entry;
  }

  /** Runs a kernel, and returns the status of the device after it. */
  run(
    shape: ClusterShape,
    parameters: string,
    body: string,
    args: readonly BareArgument[],
  ): [number, string] {
    const { blocks, threads, bytes = 1024 } = shape;
    const entry = this.load(shape, parameters, body);
    assert.equal(this.#bare.tryLaunch(entry, blocks, threads, args, 0, bytes), 0);
    return [this.#bare.cuda.driver.status.cuStreamSynchronize(0), this.#emulator.lastFault()];
  }
}
