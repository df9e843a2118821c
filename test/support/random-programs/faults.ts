/** Drivers with a fault that random programs must find: each sometimes corrupts the work of a compiled step. */

import type { Driver, Launch, Stream } from "holdfast/internals";
import { interceptCalls } from "../../../src/driver/index.js";

/** Every nth graph is not launched. The comparison of a capture with its direct run launches one too. */
export function losingReplays(device: Driver): Driver {
  let count = 0;
  return interceptCalls(device, (call, _, proceed) => {
    if (call === "launchGraph") {
      count += 1;
      if (count % 5 === 0) return undefined;
    }
    return proceed();
  });
}

/** Every nth launch is skipped. */
export function losingLaunches(device: Driver): Driver {
  let count = 0;
  return interceptCalls(device, (call, _, proceed) => {
    if (call === "launch") {
      count += 1;
      if (count % 101 === 0) return undefined;
    }
    return proceed();
  });
}

/** In a recorded graph, the second launch runs before the first. */
export function swappingRecorded(device: Driver): Driver {
  let isRecording = false;
  let held: (() => unknown) | undefined;
  let launches = 0;
  return interceptCalls(device, (call, args, proceed) => {
    if (call === "beginCapture") {
      isRecording = true;
      launches = 0;
    }
    if (isRecording && call === "launch") {
      launches += 1;
      const [stream, launch] = args as [Stream, Launch];
      if (launches === 1) {
        // The caller may reuse the arguments' array.
        const copy = { ...launch, arguments: [...launch.arguments] };
        held = () => device.launch(stream, copy);
        return undefined;
      }
    }
    if (call === "endCapture") isRecording = false;
    const first = held;
    held = undefined;
    if (first && call === "endCapture") first();
    const result = proceed();
    if (first && call !== "endCapture") first();
    return result;
  });
}
