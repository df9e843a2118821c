/**
 * Drivers whose captures fail in ways that the CPU's can't: the runtime must reject them without side
 * effects.
 */

import type { Driver, Launch, Span, Stream } from "holdfast/internals";
import { type Graph, interceptCalls, type NodeCount } from "../../src/driver/index.js";

/** The first replay writes a byte that was not recorded, into the output of the last launch. */
export function corruptingFirstReplay(device: Driver): Driver {
  let written: Span | undefined;
  let hasCorrupted = false;
  return interceptCalls(device, (call, args, proceed) => {
    const result = proceed();
    if (call === "launch") {
      const { kernel, arguments: values } = args[1] as Launch;
      written = values[kernel.parameters.findIndex((kind) => kind === "out" || kind === "inout")] as Span;
    }
    if (call === "launchGraph" && written && !hasCorrupted) {
      hasCorrupted = true;
      device.fill(args[0] as Stream, { address: written.address, size: 1 } as Span, 0xaa);
    }
    return result;
  });
}

/** The first recorded graph has extra nodes. */
export function addingNodes(extra: Partial<NodeCount>): (device: Driver) => Driver {
  return (device) => {
    let hasAdded = false;
    return interceptCalls(device, (call, _, proceed) => {
      const result = proceed();
      if (call === "endCapture" && !hasAdded) {
        hasAdded = true;
        const graph = result as Graph;
        // On the graph itself, because drivers identify a handle by its object.
        Object.assign(graph, { nodes: { ...graph.nodes, ...extra } });
      }
      return result;
    });
  };
}

/**
 * The old way: a graph's kernels read their arguments from the caller's memory at the replay. So a replay
 * uses whatever is there by then.
 */
export function keepingReferences(device: Driver): Driver {
  let recording: (() => void)[] | undefined;
  const workOf = new Map<Graph, readonly (() => void)[]>();
  return interceptCalls(device, (call, args, proceed) => {
    if (call === "beginCapture") recording = [];
    if (call === "launch" || call === "fill" || call === "copyOnDevice") recording?.push(proceed);
    if (call === "endCapture") {
      const graph = proceed() as Graph;
      workOf.set(graph, recording ?? []);
      recording = undefined;
      return graph;
    }
    if (call !== "launchGraph") return proceed();
    for (const repeat of workOf.get(args[1] as Graph) ?? []) repeat();
    return undefined;
  });
}

/** Uploads are lost from the first kernel on: no write of a capture is undone. */
export function losingUploads(device: Driver): Driver {
  let hasLaunched = false;
  return interceptCalls(device, (call, _, proceed) => {
    if (call === "launch") hasLaunched = true;
    return call === "copyToDevice" && hasLaunched ? undefined : proceed();
  });
}
