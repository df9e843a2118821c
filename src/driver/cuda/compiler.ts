/** Compiles CUDA C++ to machine code for the current device with NVRTC, through the cubin cache. */

import { HoldfastError } from "../../errors/index.js";
import type { CudaCode } from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import type { Cuda } from "./calls.js";
import type { CubinCache } from "./cubin-cache.js";
import { NativeBuffer } from "./native-buffer.js";

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
}

export class Compiler {
  readonly #options: CompilerOptions;
  readonly #out = new NativeBuffer();
  /** Kernels compiled by NVRTC since the start, and kernels loaded from the cache. */
  readonly counts = { compiled: 0, cached: 0 };

  constructor(options: CompilerOptions) {
    this.#options = options;
  }

  /** Returns the machine code of a kernel. */
  compile(name: string, { code, requiredCapability }: CudaCode): Uint8Array {
    const { cache, computeCapability, driverVersion } = this.#options;
    // "a" enables the instructions that only this architecture has.
    const architecture = `sm_${computeCapability.replace(".", "")}${requiredCapability === computeCapability ? "a" : ""}`;
    const options = [`--gpu-architecture=${architecture}`, ...flags];
    const key = cache.makeKey([code, ...options, `driver ${driverVersion}`, `NVRTC ${this.#version()}`]);
    const cached = cache.read(key);
    if (cached) {
      this.counts.cached += 1;
      return cached;
    }
    const cubin = this.#run(name, code, options);
    this.counts.compiled += 1;
    cache.write(key, cubin);
    return cubin;
  }

  close(): void {
    this.#out.free();
  }

  #version(): string {
    const out = this.#out;
    this.#options.cuda.nvrtc.nvrtcVersion(out.address, out.address + 4);
    return `${out.i32()}.${out.i32(4)}`;
  }

  #run(name: string, code: string, flags: readonly string[]): Uint8Array {
    const { nvrtc } = this.#options.cuda;
    const out = this.#out;
    nvrtc.nvrtcCreateProgram(out.address, code, `${name}.cu`, 0, 0, 0);
    const program = out.u64();
    const options = new TextTable(flags);
    try {
      const status = nvrtc.status.nvrtcCompileProgram(program, flags.length, options.address);
      if (status !== 0) throw this.#failed(name, program, status, flags);
      nvrtc.nvrtcGetCUBINSize(program, out.address);
      const cubin = new Uint8Array(out.u64());
      nvrtc.nvrtcGetCUBIN(program, Number(loadKoffi().address(cubin)));
      return cubin;
    } finally {
      options.free();
      out.setU64(program);
      nvrtc.nvrtcDestroyProgram(out.address);
    }
  }

  #failed(name: string, program: number, status: number, flags: readonly string[]): HoldfastError {
    const { nvrtc } = this.#options.cuda;
    nvrtc.nvrtcGetProgramLogSize(program, this.#out.address);
    const log = new Uint8Array(this.#out.u64());
    if (log.length > 0) nvrtc.nvrtcGetProgramLog(program, Number(loadKoffi().address(log)));
    const text = new TextDecoder().decode(log).replace(/\0.*$/s, "").trim();
    return new HoldfastError(
      "KERNEL_FAILED",
      `Kernel "${name}" did not compile for ${flags[0]?.split("=")[1]} (${nvrtc.nvrtcGetErrorString(status)}):\n${text}`,
      { numbers: { kernel: name, status } },
    );
  }
}

/** A C array of strings: a table of addresses of null-terminated texts. */
class TextTable {
  readonly #block: NativeBuffer;

  constructor(texts: readonly string[]) {
    const encoded = texts.map((text) => new TextEncoder().encode(`${text}\0`));
    const tableBytes = 8 * texts.length;
    this.#block = new NativeBuffer(tableBytes + encoded.reduce((sum, text) => sum + text.length, 0));
    let offset = tableBytes;
    for (const [index, text] of encoded.entries()) {
      this.#block.setU64(this.#block.address + offset, 8 * index);
      this.#block.bytes.set(text, offset);
      offset += text.length;
    }
  }

  get address(): number {
    return this.#block.address;
  }

  free(): void {
    this.#block.free();
  }
}
