/**
 * The commands that a stream queues and a graph records: plain records that own copies of their arguments, and the
 * executor that runs them.
 */

import { beat, type Span } from "../../units/index.js";
import type { NodeCount } from "../driver.js";
import type { DeviceMemory } from "./memory.js";
import { encodeModule } from "./wasm.js";
import { maxWideSpan, widenAddresses } from "./widen-addresses.js";
import type { LoadedKernel, WorkerPool } from "./worker-pool.js";

/** Pinned host memory. `isFree` is set when its owner frees it. */
export interface HostBuffer {
  readonly id: number;
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  isFree: boolean;
}

/** A kernel as commands refer to it. */
export interface KernelState extends LoadedKernel {
  /** Added to a span's address to form the kernel's argument. */
  readonly addressBase: number;
  isUnloaded: boolean;
}

export type Command =
  | {
      readonly kind: "launch";
      readonly kernel: KernelState;
      readonly blocks: number;
      /** Two slots for block indices, then the arguments as the kernel takes them. */
      readonly call: number[];
      /** The memory arguments, to check later that they are still committed. */
      readonly spans: readonly Span[];
    }
  | {
      readonly kind: "copyToDevice";
      readonly target: Span;
      readonly host: HostBuffer;
      readonly offset: number;
    }
  | {
      readonly kind: "copyToHost";
      readonly host: HostBuffer;
      readonly offset: number;
      readonly source: Span;
    }
  | { readonly kind: "copyOnDevice"; readonly target: Span; readonly source: Span }
  | { readonly kind: "fill"; readonly target: Span; readonly byte: number };

type FillFunction = (address: number, byte: number, size: number) => void;

/** Runs commands against one device memory and one pool. */
export class Executor {
  readonly #memory: DeviceMemory;
  readonly #pool: WorkerPool;
  readonly #fill: FillFunction;

  constructor(memory: DeviceMemory, pool: WorkerPool) {
    this.#memory = memory;
    this.#pool = pool;
    const code = memory.isWide ? widenAddresses(fillModule, { name: "fill", addresses: [0] }) : fillModule;
    const instance = new WebAssembly.Instance(new WebAssembly.Module(code), {
      env: { memory: memory.wasm },
    });
    const { fill } = instance.exports;
    this.#fill = fill as FillFunction;
  }

  run(command: Command): void {
    beat();
    switch (command.kind) {
      case "launch":
        this.#pool.run(command.kernel, command.blocks, command.call);
        break;
      case "copyToDevice": {
        const { host, offset, target } = command;
        this.#memory.bytes.set(host.bytes.subarray(offset, offset + target.size), target.address);
        break;
      }
      case "copyToHost": {
        const { host, offset, source } = command;
        host.bytes.set(this.#memory.bytes.subarray(source.address, source.address + source.size), offset);
        break;
      }
      case "copyOnDevice": {
        const { target, source } = command;
        this.#memory.bytes.copyWithin(target.address, source.address, source.address + source.size);
        break;
      }
      case "fill":
        this.#runFill(command.target, command.byte);
        break;
    }
  }

  #runFill({ address, size }: Span, byte: number): void {
    const step = maxWideSpan / 2;
    for (let done = 0; done < size; done += step)
      this.#fill(address + done, byte, Math.min(step, size - done));
  }
}

/** `Uint8Array.fill` writes shared memory byte by byte (1.3 GiB/s); the WebAssembly instruction is a memset. */
const fillModule = encodeModule([
  {
    name: "fill",
    parameters: ["i32", "i32", "i32"],
    results: [],
    body: (code) => {
      code.get(code.parameter(0)).get(code.parameter(1)).get(code.parameter(2)).op("memory.fill");
    },
  },
]);

/** Lists the device spans that a command reads or writes. */
export function listSpans(command: Command): readonly Span[] {
  switch (command.kind) {
    case "launch":
      return command.spans;
    case "copyToDevice":
    case "fill":
      return [command.target];
    case "copyToHost":
      return [command.source];
    case "copyOnDevice":
      return [command.target, command.source];
  }
}

export function countNodes(commands: readonly Command[]): NodeCount {
  const count = (...kinds: Command["kind"][]) => commands.filter(({ kind }) => kinds.includes(kind)).length;
  return {
    kernel: count("launch"),
    copy: count("copyToDevice", "copyToHost", "copyOnDevice"),
    fill: count("fill"),
    // The CPU driver rejects the calls that would create such nodes.
    memory: 0,
    host: 0,
  };
}
