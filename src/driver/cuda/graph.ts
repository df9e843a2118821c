/** A captured graph: its nodes counted, its executable, and the check that what it touches is still there. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan, type Span } from "../../units/index.js";
import type { HostMemory, Kernel, NodeCount } from "../driver.js";
import type { Cuda } from "./calls.js";
import { graphNodeType, instantiateFlag } from "./constants.js";
import { OutBlock } from "./out-block.js";

const pointerBytes = 8;

export interface GraphContents {
  readonly spans: readonly Span[];
  readonly kernels: ReadonlySet<Kernel>;
  readonly hosts: ReadonlySet<HostMemory>;
}

/** What the driver has at present. */
export interface Inventory {
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
  /** The driver's count of deaths when the contents were last found alive. */
  #checkedAtDeaths = -1;

  /** `stream` is the one that it was captured on. */
  constructor(cuda: Cuda, id: number, graph: number, stream: number, contents: GraphContents) {
    this.#cuda = cuda;
    this.#stream = stream;
    this.id = id;
    this.#graph = graph;
    this.#contents = contents;
  }

  instantiate(out: OutBlock): void {
    if (this.#executable !== 0) return;
    this.#cuda.driver.cuGraphInstantiateWithFlags(
      out.address,
      this.#graph,
      instantiateFlag.USE_NODE_PRIORITY,
    );
    this.#executable = out.u64();
    // What the first launch would otherwise have to bring to the device happens here, where time is not counted.
    this.#cuda.driver.cuGraphUpload(this.#executable, this.#stream);
  }

  /** `deaths` counts releases and unloads: unless one happened since the last check, there is nothing to look at. */
  launch(stream: number, deaths: number, inventory: Inventory): void {
    if (this.#executable === 0) {
      const message = `Graph #${this.id} was launched before it was instantiated. Call instantiate(graph) once, then launch it.`;
      throw new HoldfastError("CAPTURE_ORDER", message, { numbers: { id: this.id } });
    }
    if (deaths !== this.#checkedAtDeaths) {
      this.#requireAlive(inventory);
      this.#checkedAtDeaths = deaths;
    }
    this.#cuda.driver.cuGraphLaunch(this.#executable, stream);
  }

  destroy(): void {
    if (this.#executable !== 0) this.#cuda.driver.cuGraphExecDestroy(this.#executable);
    this.#executable = 0;
    this.#cuda.driver.cuGraphDestroy(this.#graph);
  }

  #requireAlive({ holds, isLoaded, isAllocated }: Inventory): void {
    const { spans, kernels, hosts } = this.#contents;
    const dead = spans.find((span) => !holds(span));
    if (dead) {
      const message = `Graph #${this.id} touches ${formatSpan(dead)}, which was released since the capture. Keep what a graph touches as long as the graph.`;
      throw new HoldfastError("DEAD_ADDRESS", message, {
        numbers: { graph: this.id, address: dead.address },
      });
    }
    for (const kernel of kernels) {
      if (isLoaded(kernel)) continue;
      const message = `Graph #${this.id} launches kernel "${kernel.name}", which was unloaded since the capture. Keep a graph's kernels as long as the graph.`;
      throw new HoldfastError("CLOSED", message, { numbers: { graph: this.id, kernel: kernel.id } });
    }
    for (const host of hosts) {
      if (isAllocated(host)) continue;
      const message = `Graph #${this.id} uses host memory #${host.id}, which was freed since the capture. Keep what a graph touches as long as the graph.`;
      throw new HoldfastError("CLOSED", message, { numbers: { graph: this.id, host: host.id } });
    }
  }
}

/** How many nodes a graph has, finished or still being recorded. */
export function countAllNodes(cuda: Cuda, graph: number, out: OutBlock): number {
  cuda.driver.cuGraphGetNodes(graph, 0, out.address);
  return out.u64();
}

/** The nodes by kind. What is neither work nor memory counts as a host node: nothing else belongs in a graph of ours. */
export function countNodes(cuda: Cuda, graph: number, out: OutBlock): NodeCount {
  const total = countAllNodes(cuda, graph, out);
  const count = { kernel: 0, copy: 0, fill: 0, memory: 0, host: 0 };
  if (total === 0) return count;
  const nodes = new OutBlock(total * pointerBytes);
  try {
    cuda.driver.cuGraphGetNodes(graph, nodes.address, out.address);
    for (let index = 0; index < total; index++) {
      cuda.driver.cuGraphNodeGetType(nodes.u64(index * pointerBytes), out.address);
      const kind = kindOf.get(out.i32());
      if (kind !== "none") count[kind ?? "host"] += 1;
    }
  } finally {
    nodes.free();
  }
  return count;
}

const kindOf: ReadonlyMap<number, keyof NodeCount | "none"> = new Map<number, keyof NodeCount | "none">([
  [graphNodeType.KERNEL, "kernel"],
  [graphNodeType.MEMCPY, "copy"],
  [graphNodeType.MEMSET, "fill"],
  [graphNodeType.HOST, "host"],
  // Joins of branches.
  [graphNodeType.EMPTY, "none"],
  [graphNodeType.MEM_ALLOC, "memory"],
  [graphNodeType.MEM_FREE, "memory"],
]);
