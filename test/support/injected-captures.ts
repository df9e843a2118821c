/** Drivers whose captures go wrong in ways that the CPU's can't: what the runtime must reject without a trace. */

import type { Driver, Launch, Span, Stream } from "holdfast/internals";
import { type Graph, interceptCalls, type NodeCount } from "../../src/driver/index.js";

/** The first replay writes a byte that was not recorded, into what the last launch wrote. */
export function corruptingFirstReplay(device: Driver): Driver {
  let written: Span | undefined;
  let hasCorrupted = false;
  return interceptCalls(device, (call, args, proceed) => {
    const result = proceed();
    if (call === "launch") {
      const { kernel, arguments: values } = args[1] as Launch;
      written = values[kernel.parameters.findIndex((one) => one === "out" || one === "inout")] as Span;
    }
    if (call === "launchGraph" && written && !hasCorrupted) {
      hasCorrupted = true;
      device.fill(args[0] as Stream, { address: written.address, size: 1 } as Span, 0xaa);
    }
    return result;
  });
}

/** The first recorded graph holds nodes that nobody asked for. */
export function addingNodes(extra: Partial<NodeCount>): (device: Driver) => Driver {
  return (device) => {
    let hasAdded = false;
    return interceptCalls(device, (call, _, proceed) => {
      const result = proceed();
      if (call === "endCapture" && !hasAdded) {
        hasAdded = true;
        const graph = result as Graph;
        // On the graph itself: drivers know a handle by its identity.
        Object.assign(graph, { nodes: { ...graph.nodes, ...extra } });
      }
      return result;
    });
  };
}

/**
 * The old way: a graph's kernels read their arguments where the caller had them at the capture. A replay therefore does
 * whatever stands there by then.
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

/** Uploads are lost from the first kernel on: nothing that a capture has written is put back. */
export function losingUploads(device: Driver): Driver {
  let hasLaunched = false;
  return interceptCalls(device, (call, _, proceed) => {
    if (call === "launch") hasLaunched = true;
    return call === "copyToDevice" && hasLaunched ? undefined : proceed();
  });
}
