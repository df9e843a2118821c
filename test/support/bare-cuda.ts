/** CUDA by its bare calls, which return statuses: for tests of what a library itself does. */

import assert from "node:assert/strict";
import { type Cuda, openCuda } from "../../src/driver/cuda/calls.js";
import { launchAttribute } from "../../src/driver/cuda/constants.js";
import { NativeBuffer } from "../../src/driver/cuda/native-buffer.js";
import { structs } from "../../src/driver/cuda/structs.js";
import { loadKoffi } from "../../src/driver/foreign-functions.js";

/** An argument of a kernel: an address, a number of a type, or the bytes at an address of this process. */
export type BareArgument =
  | number
  | { readonly at: number }
  | { readonly u32: number }
  | { readonly i32: number }
  | { readonly f32: number }
  | { readonly f64: number };

export interface Compilation {
  readonly status: number;
  readonly log: string;
  readonly cubin: Uint8Array;
}

type Elements = Float32Array | Float64Array | Uint32Array | Int32Array | Uint16Array | Uint8Array;

export class BareCuda {
  readonly cuda: Cuda;
  readonly out = new NativeBuffer(256);
  readonly context: number;
  /** "sm_90" */
  readonly architecture: string;
  readonly #arguments = new NativeBuffer(512);
  readonly #staging: number;
  readonly #stagingBytes = 1 << 20;

  /** Opens the libraries in a folder (default: the system's), with the first device's context current. */
  constructor(folder?: string) {
    this.cuda = openCuda({
      environment: folder === undefined ? process.env : { HOLDFAST_CUDA_PATH: folder },
    });
    const { driver } = this.cuda;
    driver.cuInit(0);
    driver.cuDevicePrimaryCtxRetain(this.out.address, 0);
    this.context = this.out.u64();
    driver.cuCtxSetCurrent(this.context);
    this.architecture = `sm_${this.attribute(75)}${this.attribute(76)}`;
    this.#staging = this.make((to) => driver.cuMemHostAlloc(to, this.#stagingBytes, 0));
  }

  attribute(number: number): number {
    this.cuda.driver.cuDeviceGetAttribute(this.out.address, number, 0);
    return this.out.i32();
  }

  /** Calls a function that writes a handle or an address to its first argument, and returns that. */
  make(call: (to: number) => void): number {
    call(this.out.address);
    return this.out.u64();
  }

  allocate(size: number): number {
    return this.make((to) => this.cuda.driver.cuMemAlloc_v2(to, size));
  }

  /** Device memory with these values. */
  put(values: Elements): number {
    const address = this.allocate(Math.max(1, values.byteLength));
    this.write(address, values);
    return address;
  }

  write(address: number, values: Elements): void {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    assert.ok(bytes.length <= this.#stagingBytes, "staging is for small things");
    new Uint8Array(loadKoffi().view(this.#staging, this.#stagingBytes)).set(bytes);
    this.cuda.driver.cuMemcpyHtoDAsync_v2(address, this.#staging, bytes.length, 0);
    this.cuda.driver.cuStreamSynchronize(0);
  }

  /** Fills an array from device memory. */
  read<Array extends Elements>(address: number, target: Array): Array {
    this.cuda.driver.cuMemcpyDtoHAsync_v2(this.#staging, address, target.byteLength, 0);
    this.cuda.driver.cuStreamSynchronize(0);
    const bytes = new Uint8Array(loadKoffi().view(this.#staging, target.byteLength));
    new Uint8Array(target.buffer, target.byteOffset, target.byteLength).set(bytes);
    return target;
  }

  compile(
    code: string,
    options: readonly string[] = [`--gpu-architecture=${this.architecture}`, "--fmad=false"],
  ) {
    const { nvrtc } = this.cuda;
    const program = this.make((to) => nvrtc.nvrtcCreateProgram(to, code, "kernel.cu", 0, 0, 0));
    const texts = options.map((option) => new TextEncoder().encode(`${option}\0`));
    const table = new NativeBuffer(8 * texts.length + texts.reduce((sum, text) => sum + text.length, 1));
    let at = 8 * texts.length;
    for (const [index, text] of texts.entries()) {
      table.setU64(table.address + at, 8 * index);
      table.bytes.set(text, at);
      at += text.length;
    }
    const status = nvrtc.status.nvrtcCompileProgram(program, texts.length, table.address);
    const log = new Uint8Array(this.make((to) => nvrtc.nvrtcGetProgramLogSize(program, to)));
    nvrtc.nvrtcGetProgramLog(program, Number(loadKoffi().address(log)));
    const size = status === 0 ? this.make((to) => nvrtc.nvrtcGetCUBINSize(program, to)) : 0;
    const cubin = new Uint8Array(size);
    if (size > 0) nvrtc.nvrtcGetCUBIN(program, Number(loadKoffi().address(cubin)));
    this.out.setU64(program);
    nvrtc.nvrtcDestroyProgram(this.out.address);
    table.free();
    return { status, log: new TextDecoder().decode(log).replace(/\0$/, ""), cubin } satisfies Compilation;
  }

  loadModule(cubin: Uint8Array): number {
    return this.make((to) => this.cuda.driver.cuModuleLoadData(to, Number(loadKoffi().address(cubin))));
  }

  /** Compiles and loads a kernel, and returns its function. */
  load(code: string, entry: string): number {
    const { status, log, cubin } = this.compile(code);
    assert.equal(status, 0, log);
    const module = this.loadModule(cubin);
    return this.make((to) => this.cuda.driver.cuModuleGetFunction(to, module, entry));
  }

  /** The status of a launch. */
  tryLaunch(
    entry: number,
    blocks: number,
    threads: number,
    args: readonly BareArgument[],
    stream = 0,
    sharedBytes = 0,
  ): number {
    const table = this.#writeArguments(args);
    const { status } = this.cuda.driver;
    return status.cuLaunchKernel(entry, blocks, 1, 1, threads, 1, 1, sharedBytes, stream, table, 0);
  }

  /** Launches with PDL, so that it may start before the preceding launch ends; with 0 for `isPdl`, without. */
  launchPdl(
    entry: number,
    blocks: number,
    threads: number,
    args: readonly BareArgument[],
    { stream = 0, sharedBytes = 0, isPdl = 1 } = {},
  ): void {
    const { launchConfig, launchAttribute: attribute } = structs;
    const block = new NativeBuffer(launchConfig.size + attribute.size);
    const attributes = block.address + launchConfig.size;
    launchConfig.write(block.view, {
      ...{ gridX: blocks, gridY: 1, gridZ: 1, blockX: threads, blockY: 1, blockZ: 1, sharedBytes },
      ...{ stream, attributes, count: 1 },
    });
    const id = launchAttribute.PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.write(block.view, { id }, launchConfig.size);
    block.view.setInt32(launchConfig.size + attribute.offsets.value, isPdl, true);
    this.cuda.driver.cuLaunchKernelEx(block.address, entry, this.#writeArguments(args), 0);
    block.free();
  }

  /** The address of the table of a launch's arguments. */
  #writeArguments(args: readonly BareArgument[]): number {
    const block = this.#arguments;
    const table = 256;
    for (const [index, argument] of args.entries()) {
      const at = 8 * index;
      if (typeof argument === "number") block.setU64(argument, at);
      else if ("u32" in argument) block.view.setUint32(at, argument.u32, true);
      else if ("i32" in argument) block.view.setInt32(at, argument.i32, true);
      else if ("f32" in argument) block.view.setFloat32(at, argument.f32, true);
      else if ("f64" in argument) block.view.setFloat64(at, argument.f64, true);
      const isElsewhere = typeof argument === "object" && "at" in argument;
      block.setU64(isElsewhere ? argument.at : block.address + at, table + at);
    }
    return block.address + table;
  }

  launch(
    entry: number,
    blocks: number,
    threads: number,
    args: readonly BareArgument[],
    stream = 0,
    sharedBytes = 0,
  ): void {
    assert.equal(this.tryLaunch(entry, blocks, threads, args, stream, sharedBytes), 0);
  }

  stream(): number {
    return this.make((to) => this.cuda.driver.cuStreamCreateWithPriority(to, 1, 0));
  }

  event(): number {
    return this.make((to) => this.cuda.driver.cuEventCreate(to, 2));
  }

  /** The address of a description of device memory for the virtual memory API. */
  memoryProperty(): NativeBuffer {
    const block = new NativeBuffer();
    structs.allocationProperty.write(block.view, { type: 1, locationType: 1, locationId: 0 });
    return block;
  }

  memoryAccess(): NativeBuffer {
    const block = new NativeBuffer();
    structs.access.write(block.view, { locationType: 1, locationId: 0, flags: 3 });
    return block;
  }
}
