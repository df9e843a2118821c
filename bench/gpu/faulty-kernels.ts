/**
 * Kernels with injected faults for the tools that check memory: a fault that a tool misses here, it would
 * miss anywhere.
 */

import type { KernelSource, Runtime } from "holdfast/internals";

/** Writes a number at an index outside the storage. */
function strayWriter(entry: string): KernelSource {
  const code = `extern "C" __global__ void __launch_bounds__(32) ${entry}(float* target, unsigned place) {
  if (threadIdx.x == 0u) target[place] = 1.0f;
}`;
  return { name: entry, parameters: ["out", "u32"], cuda: { code, entry, threads: 32 } };
}

/** Copies a number that was never written. */
const unwrittenReader: KernelSource = {
  name: "hf_stray_read",
  parameters: ["in", "out"],
  cuda: {
    code: `extern "C" __global__ void __launch_bounds__(32) hf_stray_read(const float* source, float* target) {
  if (threadIdx.x == 0u) target[0] = source[7];
}`,
    entry: "hf_stray_read",
    threads: 32,
  },
};

/** The first half of a block reads the writes of the second half without a barrier between them. */
const racer: KernelSource = {
  name: "hf_stray_race",
  parameters: ["out"],
  cuda: {
    code: `extern "C" __global__ void __launch_bounds__(64) hf_stray_race(float* target) {
  __shared__ float shared[64];
  shared[threadIdx.x] = (float)threadIdx.x;
  target[threadIdx.x] = shared[63u - threadIdx.x];
}`,
    entry: "hf_stray_race",
    threads: 64,
  },
};

/** A thread waits with others at a barrier that does not count it. */
const divider: KernelSource = {
  name: "hf_stray_barrier",
  parameters: ["out"],
  cuda: {
    code: `extern "C" __global__ void __launch_bounds__(32) hf_stray_barrier(float* target) {
  if (threadIdx.x < 17u) __syncwarp(0xffffu);
  target[threadIdx.x] = 1.0f;
}`,
    entry: "hf_stray_barrier",
    threads: 32,
  },
};

/** The faults that each tool must find, in the words of its log. */
export const strayRuns: Readonly<
  Record<string, { readonly kernels: readonly string[]; run(runtime: Runtime): void }>
> = {
  memcheck: {
    kernels: ["hf_stray_padding", "hf_stray_dead"],
    run(runtime) {
      const [padding, dead] = ["hf_stray_padding", "hf_stray_dead"].map((entry) =>
        runtime.kernel(strayWriter(entry)),
      );
      // 100 floats end 112 bytes before the next storage, and nothing is live 64 KiB after them.
      const storage = runtime.arena.allocate(400, "stray");
      runtime.launch({ op: "stray", kernel: padding!, blocks: 1, arguments: [storage, 100] });
      runtime.launch({ op: "stray", kernel: dead!, blocks: 1, arguments: [storage, 16_384] });
    },
  },
  initcheck: {
    kernels: ["hf_stray_read"],
    run(runtime) {
      const [source, target] = [runtime.arena.allocate(64, "unwritten"), runtime.arena.allocate(64, "copy")];
      const kernel = runtime.kernel(unwrittenReader);
      runtime.launch({ op: "stray", kernel, blocks: 1, arguments: [source, target] });
    },
  },
  racecheck: {
    kernels: ["hf_stray_race"],
    run(runtime) {
      const target = runtime.arena.allocate(256, "raced");
      runtime.launch({ op: "stray", kernel: runtime.kernel(racer), blocks: 1, arguments: [target] });
    },
  },
  synccheck: {
    kernels: ["hf_stray_barrier"],
    run(runtime) {
      const target = runtime.arena.allocate(128, "divided");
      runtime.launch({ op: "stray", kernel: runtime.kernel(divider), blocks: 1, arguments: [target] });
    },
  },
};
