/** A captured graph: its node count, its executable, and the check that the memory and kernels it uses still exist. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan, type Span } from "../../units/index.js";
import type { HostMemory, Kernel, NodeCount } from "../driver.js";
import type { Cuda } from "./calls.js";
import { graphNodeType, instantiateFlag } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";

const pointerBytes = 8;

export interface GraphContents {
  readonly spans: readonly Span[];
  readonly kernels: ReadonlySet<Kernel>;
  readonly hosts: ReadonlySet<HostMemory>;
}

/** The memory and kernels that the driver currently has. */
export interface LiveResources {
  holds(span: Span): boolean;
  isLoaded(kernel: Kernel): boolean;
  isAllocated(host: HostMemory): boolean;
}

export class CudaGraph {
  readonly id: number;
  readonly #cuda: Cuda;
  readonly #graph: number;
  readonly #stream: number;
  readonly #contents: GraphContents;
  #executable = 0;
  /** The driver's invalidation count when the contents were last checked. */
  #checkedAt = -1;

  /** `stream` is the stream it was captured on. */
  constructor(cuda: Cuda, id: number, graph: number, stream: number, contents: GraphContents) {
    this.#cuda = cuda;
    this.#stream = stream;
    this.id = id;
    this.#graph = graph;
    this.#contents = contents;
  }

  instantiate(out: NativeBuffer): void {
    if (this.#executable !== 0) return;
    this.#cuda.driver.cuGraphInstantiateWithFlags(
      out.address,
      this.#graph,
      instantiateFlag.USE_NODE_PRIORITY,
    );
    this.#executable = out.u64();
    // Upload now, so that the first launch does not pay for it.
    this.#cuda.driver.cuGraphUpload(this.#executable, this.#stream);
  }

  /** `invalidations` counts releases and unloads. If it is unchanged since the last check, the graph is still valid. */
  launch(stream: number, invalidations: number, live: LiveResources): void {
    if (this.#executable === 0) {
      const message = `Graph #${this.id} was launched before it was instantiated. Call instantiate(graph) once before the first launch.`;
      throw new HoldfastError("CAPTURE_ORDER", message, { numbers: { id: this.id } });
    }
    if (invalidations !== this.#checkedAt) {
      this.#requireAlive(live);
      this.#checkedAt = invalidations;
    }
    this.#cuda.driver.cuGraphLaunch(this.#executable, stream);
  }

  destroy(): void {
    if (this.#executable !== 0) this.#cuda.driver.cuGraphExecDestroy(this.#executable);
    this.#executable = 0;
    this.#cuda.driver.cuGraphDestroy(this.#graph);
  }

  #requireAlive({ holds, isLoaded, isAllocated }: LiveResources): void {
    const { spans, kernels, hosts } = this.#contents;
    const dead = spans.find((span) => !holds(span));
    if (dead) {
      const message = `Graph #${this.id} touches ${formatSpan(dead)}, which was released after the capture. Keep the memory until the graph is destroyed.`;
      throw new HoldfastError("DEAD_ADDRESS", message, {
        numbers: { graph: this.id, address: dead.address },
      });
    }
    for (const kernel of kernels) {
      if (isLoaded(kernel)) continue;
      const message = `Graph #${this.id} launches kernel "${kernel.name}", which was unloaded after the capture. Keep the kernel until the graph is destroyed.`;
      throw new HoldfastError("CLOSED", message, { numbers: { graph: this.id, kernel: kernel.id } });
    }
    for (const host of hosts) {
      if (isAllocated(host)) continue;
      const message = `Graph #${this.id} uses host memory #${host.id}, which was freed after the capture. Keep the memory until the graph is destroyed.`;
      throw new HoldfastError("CLOSED", message, { numbers: { graph: this.id, host: host.id } });
    }
  }
}

/** The number of nodes of a graph, finished or still being recorded. */
export function countAllNodes(cuda: Cuda, graph: number, out: NativeBuffer): number {
  cuda.driver.cuGraphGetNodes(graph, 0, out.address);
  return out.u64();
}

/**
 * Counts the nodes by kind. A node that is neither work nor memory counts as a host node, which the runtime rejects.
 */
export function countNodes(cuda: Cuda, graph: number, out: NativeBuffer): NodeCount {
  const total = countAllNodes(cuda, graph, out);
  const count = { kernel: 0, copy: 0, fill: 0, memory: 0, host: 0 };
  if (total === 0) return count;
  const nodes = new NativeBuffer(total * pointerBytes);
  try {
    cuda.driver.cuGraphGetNodes(graph, nodes.address, out.address);
    for (let index = 0; index < total; index++) {
      cuda.driver.cuGraphNodeGetType(nodes.u64(index * pointerBytes), out.address);
      const kind = nodeKinds.get(out.i32());
      if (kind !== "none") count[kind ?? "host"] += 1;
    }
  } finally {
    nodes.free();
  }
  return count;
}

const nodeKinds: ReadonlyMap<number, keyof NodeCount | "none"> = new Map<number, keyof NodeCount | "none">([
  [graphNodeType.KERNEL, "kernel"],
  [graphNodeType.MEMCPY, "copy"],
  [graphNodeType.MEMSET, "fill"],
  [graphNodeType.HOST, "host"],
  // Joins of streams.
  [graphNodeType.EMPTY, "none"],
  [graphNodeType.MEM_ALLOC, "memory"],
  [graphNodeType.MEM_FREE, "memory"],
]);
