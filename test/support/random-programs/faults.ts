/** Drivers with a fault that random programs must find: each spoils now and then what a compiled step has sent. */

import type { Driver, Launch, Stream } from "holdfast/internals";
import { interceptCalls } from "../../../src/driver/index.js";

/** Every so many graphs are not launched. A capture that is compared with its direct run launches one too. */
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

/** Every so many launches are not made. */
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

/** In a recorded graph, the second launch is made before the first. */
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
        // The arguments' array may be used again by whoever made it.
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
