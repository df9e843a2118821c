/** A wrapper that writes down every driver call that passes: tests count them, and look at what a capture let through. */

import type { Driver, DriverCall, Launch } from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";

export interface LoggedCall {
  readonly call: DriverCall;
  readonly args: readonly unknown[];
  /** Did the driver record at that time? The calls that begin and end it stand outside. */
  readonly isInCapture: boolean;
  hasReturned: boolean;
}

export class CallLog {
  readonly calls: LoggedCall[] = [];
  #isCapturing = false;

  get isCapturing(): boolean {
    return this.#isCapturing;
  }

  /** A function, so that it can be handed on: `withRuntime(…, log.wrap)`. */
  readonly wrap = (inner: Driver): Driver =>
    interceptCalls(inner, (call, args, proceed) => {
      // Whatever the driver says, its capture is over.
      if (call === "endCapture") this.#isCapturing = false;
      const logged: LoggedCall = { call, args, isInCapture: this.#isCapturing, hasReturned: false };
      this.calls.push(logged);
      const result = proceed();
      logged.hasReturned = true;
      if (call === "beginCapture") this.#isCapturing = true;
      return result;
    });

  /** How often a call was made and returned. */
  count(call: DriverCall): number {
    return this.calls.filter((one) => one.call === call && one.hasReturned).length;
  }

  /**
   * How many kernels were launched and returned, but for those that bring gradients to their places: the CPU does that with
   * copies.
   */
  countKernels(): number {
    const names = this.calls.flatMap(({ call, args, hasReturned }) =>
      call === "launch" && hasReturned ? [(args[1] as Launch).kernel.name] : [],
    );
    return names.filter((name) => !/^copy of \d+$/.test(name)).length;
  }

  /** The calls that came behind the first `count`, those that the driver rejected among them. */
  namesFrom(count: number): DriverCall[] {
    return this.calls.slice(count).map(({ call }) => call);
  }

  namesInCapture(): DriverCall[] {
    return this.calls.filter(({ isInCapture }) => isInCapture).map(({ call }) => call);
  }
}
