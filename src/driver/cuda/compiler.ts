/** Compiles CUDA C++ to machine code for the current device with NVRTC, through the cubin cache. */

import type { CudaCode } from "../driver.js";
import type { Cuda } from "./calls.js";
import type { CubinCache } from "./cubin-cache.js";
import { nvrtcVersion } from "./library-versions.js";
import { compileProgram, type NvrtcProgram } from "./nvrtc.js";
import { ProgramCompiler } from "./program-compiler.js";

/**
 * IEEE arithmetic: no fast-math, and no contraction of a multiply and an add unless the code says fma. So a kernel
 * rounds where the CPU's does.
 */
const flags = ["--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"] as const;

export interface CompilerOptions {
  readonly cuda: Cuda;
  /** "9.0" */
  readonly computeCapability: string;
  readonly driverVersion: number;
  readonly cache: CubinCache;
  /** Threads that compile, with the calling one. */
  readonly threads: number;
}

/** CUDA C++ with the kernel's name. */
export interface NamedCode {
  readonly name: string;
  readonly code: CudaCode;
}

export class Compiler {
  readonly #options: CompilerOptions;
  readonly #programs: ProgramCompiler;
  /** The machine code of the latest `compileAll`, by cache key. */
  readonly #ready = new Map<string, Uint8Array>();
  #nvrtcVersion: string | undefined;
  /** Kernels compiled by NVRTC since the start, and kernels loaded from the cache. */
  readonly counts = { compiled: 0, cached: 0 };

  constructor(options: CompilerOptions) {
    this.#options = options;
    const { cuda, threads } = options;
    this.#programs = new ProgramCompiler({
      threads,
      compile: (program) => compileProgram(cuda.nvrtc, program),
      threadScript: () => ({
        script: new URL("./compile-thread.js", import.meta.url),
        data: { nvrtcPath: cuda.libraries.find(({ library }) => library === "nvrtc")?.path },
      }),
    });
  }

  /** Returns the machine code of a kernel. */
  compile(name: string, code: CudaCode): Uint8Array {
    const program = this.#programOf({ name, code });
    const key = this.#keyOf(program);
    return this.#ready.get(key) ?? this.#read(key) ?? this.#keep(key, this.#programs.compile(program));
  }

  /** Compiles kernels, several at once, so that `compile` returns their machine code at once. */
  compileAll(codes: readonly NamedCode[]): void {
    this.#ready.clear();
    const missing = new Map<string, NvrtcProgram>();
    for (const code of codes) {
      const program = this.#programOf(code);
      const key = this.#keyOf(program);
      if (this.#ready.has(key) || missing.has(key)) continue;
      const cached = this.#read(key);
      if (cached) this.#ready.set(key, cached);
      else missing.set(key, program);
    }
    this.#programs.compileAll([...missing.values()], (program, cubin) => {
      const key = this.#keyOf(program);
      this.#ready.set(key, this.#keep(key, cubin));
    });
  }

  #programOf({ name, code: { code, requiredCapability } }: NamedCode): NvrtcProgram {
    const { computeCapability } = this.#options;
    // "a" enables the instructions that only this architecture has.
    const architecture = `sm_${computeCapability.replace(".", "")}${requiredCapability === computeCapability ? "a" : ""}`;
    return { name, code, options: [`--gpu-architecture=${architecture}`, ...flags] };
  }

  #keyOf({ code, options }: NvrtcProgram): string {
    const { cache, cuda, driverVersion } = this.#options;
    this.#nvrtcVersion ??= nvrtcVersion(cuda.nvrtc);
    return cache.makeKey([code, ...options, `driver ${driverVersion}`, `NVRTC ${this.#nvrtcVersion}`]);
  }

  #read(key: string): Uint8Array | undefined {
    const cached = this.#options.cache.read(key);
    if (cached) this.counts.cached += 1;
    return cached;
  }

  #keep(key: string, cubin: Uint8Array): Uint8Array {
    this.counts.compiled += 1;
    this.#options.cache.write(key, cubin);
    return cubin;
  }
}
