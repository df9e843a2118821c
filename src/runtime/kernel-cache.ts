/** The loaded kernels of a runtime, by the content of their sources. */

import type { Driver, Kernel, KernelSource } from "../driver/index.js";
import { beat } from "../units/index.js";
import type { CaptureStateMachine } from "./capture/capture-state.js";
import { sourceKey } from "./source-key.js";

export interface KernelCacheOptions {
  readonly driver: Driver;
  readonly captureState: CaptureStateMachine;
  /** Close actions, in the order of opening. */
  readonly closing: (() => void)[];
}

export class KernelCache {
  readonly #options: KernelCacheOptions;
  readonly #kernels = new Map<string, Kernel>();
  readonly #collectives = new WeakSet<Kernel>();

  constructor(options: KernelCacheOptions) {
    this.#options = options;
  }

  /** Loads kernels. The driver compiles those that are not loaded yet several at once. */
  loadAll(sources: readonly KernelSource[]): void {
    const missing = new Map<string, KernelSource>();
    for (const source of sources) {
      const key = sourceKey(source);
      if (!this.#kernels.has(key)) missing.set(key, source);
    }
    const [first, ...others] = missing.values();
    if (!first) return;
    const { driver, captureState } = this.#options;
    captureState.reject("load of a kernel", first.name);
    driver.compileKernels?.([first, ...others]);
    for (const source of [first, ...others]) {
      beat();
      this.load(source);
    }
  }

  /** True if a library issues the kernel's work. */
  isCollective(kernel: Kernel): boolean {
    return this.#collectives.has(kernel);
  }

  /** Loads a kernel. Sources with the same content share one. */
  load(source: KernelSource): Kernel {
    const key = sourceKey(source);
    const cached = this.#kernels.get(key);
    if (cached) return cached;
    const { driver, captureState, closing } = this.#options;
    captureState.reject("load of a kernel", source.name);
    const kernel = driver.loadKernel(source);
    this.#kernels.set(key, kernel);
    if (source.enqueue) this.#collectives.add(kernel);
    closing.push(() => driver.unloadKernel(kernel));
    return kernel;
  }
}
