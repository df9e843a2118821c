/**
 * A driver with a fake clock: work takes the time that a test says, and the clock advances when a call waits
 * for it.
 */

import {
  type Driver,
  type Graph,
  interceptCalls,
  type Kernel,
  type KernelSource,
  type Launch,
} from "../../src/driver/index.js";
import { FakeClock } from "../../src/units/index.js";

export interface TimedDriver {
  readonly driver: Driver;
  readonly clock: FakeClock;
}

/** `costMs` is called for every launch, also for a recorded one; an exception becomes the launch's. */
export function timed(inner: Driver, costMs: (source: KernelSource) => number): TimedDriver {
  const clock = new FakeClock();
  const sources = new Map<Kernel, KernelSource>();
  const graphs = new Map<Graph, number>();
  let [issuedMs, recordedMs, isRecording] = [0, 0, false];
  const driver = interceptCalls(inner, (call, args, proceed) => {
    switch (call) {
      case "loadKernel": {
        const kernel = proceed() as Kernel;
        sources.set(kernel, args[0] as KernelSource);
        return kernel;
      }
      case "launch": {
        const cost = costMs(sources.get((args[1] as Launch).kernel)!);
        if (isRecording) recordedMs += cost;
        else issuedMs += cost;
        return proceed();
      }
      case "beginCapture":
        [recordedMs, isRecording] = [0, true];
        return proceed();
      case "endCapture": {
        isRecording = false;
        const graph = proceed() as Graph;
        graphs.set(graph, recordedMs);
        return graph;
      }
      case "launchGraph":
        issuedMs += graphs.get(args[1] as Graph)!;
        return proceed();
      case "synchronize":
        clock.advance(issuedMs);
        issuedMs = 0;
        return proceed();
      default:
        return proceed();
    }
  });
  return { driver, clock };
}
