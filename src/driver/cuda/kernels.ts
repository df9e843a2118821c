/** Loaded kernels: they can be launched on a stream and unloaded. */

import { HoldfastError } from "../../errors/index.js";
import type { Span } from "../../units/index.js";
import { requireLaunch } from "../checks.js";
import type { KernelSource, Launch, Parameter } from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import type { Reservations } from "../reservations.js";
import { ArgumentBlock } from "./argument-block.js";
import type { Cuda } from "./calls.js";
import type { Compiler } from "./compiler.js";
import { functionAttribute, launchAttribute } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";
import { structs } from "./structs.js";
import { requireTensorMaps } from "./tensor-maps.js";

export interface LoadedKernel {
  readonly parameters: readonly Parameter[];
  readonly workspaceBytes: number;
  /** Number of available algorithms. */
  readonly algorithmCount: number;
  /** The graph nodes that a launch becomes. A library may record several kernels, or nodes of any kind. */
  readonly recordedNodes: "one kernel" | "kernels" | "any";
  launch(stream: number, launch: Launch, reservations: Reservations, accessed: Span[] | undefined): void;
  unload(): void;
}

/** Loads a kernel from CUDA C++. */
export function loadCode(cuda: Cuda, compiler: Compiler, source: KernelSource): LoadedKernel {
  const { name, parameters, cuda: code } = source;
  if (!code) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `Kernel "${name}" has no CUDA code and cannot be loaded on a GPU. Use another kernel, or the CPU.`,
      { numbers: { kernel: name } },
    );
  }
  const { maps = [] } = code;
  requireTensorMaps(name, parameters, maps);
  const cubin = compiler.compile(name, code);
  const out = new NativeBuffer();
  const { driver } = cuda;
  const { threads, sharedBytes = 0 } = code;
  let [module, entry] = [0, 0];
  try {
    driver.cuModuleLoadData(out.address, Number(loadKoffi().address(cubin)));
    module = out.u64();
    driver.cuModuleGetFunction(out.address, module, code.entry);
    entry = out.u64();
    // Querying an attribute forces the load now. Lazy loading could otherwise happen inside a capture.
    driver.cuFuncGetAttribute(out.address, functionAttribute.NUM_REGS, entry);
    if (sharedBytes > 0)
      driver.cuFuncSetAttribute(entry, functionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, sharedBytes);
  } catch (error) {
    if (module !== 0) driver.cuModuleUnload(module);
    throw error;
  } finally {
    out.free();
  }
  const block = new ArgumentBlock(cuda, name, parameters, maps);
  /** Created when first needed: most kernels never use it. */
  let pdlConfig: PdlConfig | undefined;
  return {
    parameters,
    workspaceBytes: 0,
    algorithmCount: 1,
    recordedNodes: "one kernel",
    launch(stream, { blocks, arguments: args, isPdl }, reservations, accessed) {
      requireLaunch(name, parameters, blocks, args.length);
      block.write(args, reservations, accessed);
      if (blocks === 0) return;
      block.encodeMaps(args);
      if (isPdl && code.hasGridDependencyWait) {
        pdlConfig ??= new PdlConfig(threads, sharedBytes);
        driver.cuLaunchKernelEx(pdlConfig.on(stream, blocks), entry, block.table, 0);
      } else driver.cuLaunchKernel(entry, blocks, 1, 1, threads, 1, 1, sharedBytes, stream, block.table, 0);
    },
    unload() {
      driver.cuModuleUnload(module);
      block.free();
      pdlConfig?.free();
    },
  };
}

/** The launch configuration for programmatic dependent launch. */
class PdlConfig {
  readonly #block = new NativeBuffer(structs.launchConfig.size + structs.launchAttribute.size);

  constructor(threads: number, sharedBytes: number) {
    const { launchConfig, launchAttribute: attribute } = structs;
    const attributeOffset = launchConfig.size;
    launchConfig.write(this.#block.view, {
      ...{ gridX: 1, gridY: 1, gridZ: 1, blockX: threads, blockY: 1, blockZ: 1, sharedBytes },
      ...{ attributes: this.#block.address + attributeOffset, count: 1 },
    });
    attribute.write(
      this.#block.view,
      { id: launchAttribute.PROGRAMMATIC_STREAM_SERIALIZATION },
      attributeOffset,
    );
    this.#block.view.setInt32(attributeOffset + attribute.offsets.value, 1, true);
  }

  /** Returns its address, set for `blocks` blocks on a stream. */
  on(stream: number, blocks: number): number {
    const { offsets } = structs.launchConfig;
    this.#block.view.setUint32(offsets.gridX, blocks, true);
    this.#block.setU64(stream, offsets.stream);
    return this.#block.address;
  }

  free(): void {
    this.#block.free();
  }
}
